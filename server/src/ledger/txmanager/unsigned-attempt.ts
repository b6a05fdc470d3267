/**
 * A transaction before it is signed: the row that is written with its nonce, and the transaction that is signed later.
 * Pure.
 */
import type { Selectable } from "kysely"
import type { Fees } from "../../platform/chain/fees.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { RELEASE_GAS } from "../../platform/chain/release-call.ts"
import { type UnsignedTransaction, unsignedHash } from "../../platform/chain/signer.ts"
import type { Database, Row } from "../../platform/db/schema.ts"

type Attempt = Selectable<Database["transaction_attempts"]>
/** The row of an attempt before it is signed. */
export type UnsignedRow = Pick<
  Attempt,
  "chain_id" | "wallet" | "nonce" | "gas" | "max_fee" | "tip" | "empty" | "payout_id" | "n" | "data_fee"
> & { raw: null; hash: null; unsigned_hash: Hash }
type Call = Pick<Row<"payouts">, "to_address" | "data" | "value">

/** Returns the gas limit of a payout's transactions. */
export const gasOf = ({ gas }: Pick<Row<"payouts">, "gas">): bigint => gas ?? RELEASE_GAS

/**
 * Builds the unsigned row of a payout's transaction at a nonce. The transaction's data may cost `dataFee` wei in
 * addition to its gas. With `empty`, the transaction is an empty transfer from the wallet to itself. Write the row in
 * the transaction that holds the wallet's lock.
 */
export function unsignedAttempt(
  payout: Pick<Row<"payouts">, "id" | "chain_id"> & Call & { wallet: Address; nonce: bigint },
  { n, gas, maxFee, tip, dataFee, empty = false }: Fees & { n: number; gas: bigint; dataFee: bigint; empty?: boolean },
): UnsignedRow {
  const { id, chain_id, wallet, nonce } = payout
  const row = { chain_id, wallet, nonce, gas, max_fee: maxFee, tip, empty }
  const unsigned_hash = unsignedHash(transactionOf(row, payout))
  return { ...row, payout_id: id, n, data_fee: dataFee, raw: null, hash: null, unsigned_hash }
}

/** Builds the transaction to sign for an attempt of a payout. */
export function transactionOf(
  attempt: Pick<Attempt, "chain_id" | "wallet" | "nonce" | "gas" | "max_fee" | "tip" | "empty">,
  payout: Call,
): UnsignedTransaction {
  const {
    to_address: to,
    data,
    value,
  } = attempt.empty ? { to_address: attempt.wallet, data: "0x" as const, value: 0n } : payout
  return {
    chainId: attempt.chain_id,
    // A nonce is far below 2⁵³, and viem needs a number.
    nonce: Number.parseInt(attempt.nonce.toString(), 10),
    to,
    data,
    value,
    gas: attempt.gas,
    maxFeePerGas: attempt.max_fee,
    maxPriorityFeePerGas: attempt.tip,
  }
}
