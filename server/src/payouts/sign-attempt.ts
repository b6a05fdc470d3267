/** Signs transactions, and checks each signed transaction against the request before it is stored. */
// I/O: waits for the signer that it is given, which may be a device.
import type { Insertable } from "kysely"
import { type Hex, keccak256, parseTransaction, serializeSignature, serializeTransaction } from "viem"
import type { Fees } from "../chain/fees.ts"
import type { Address, Hash } from "../chain/hex.ts"
import { recoverSigner } from "../chain/recover.ts"
import type { Signer, UnsignedTransaction } from "../chain/signer.ts"
import type { Database, Row } from "../db/schema.ts"

/**
 * Signs a payout at its nonce, whose data may cost `dataFee` wei beside its gas; the answer is to be written in the transaction that holds the wallet. Throws when the signed
 * transaction differs from the request, or when another key signed it.
 */
export async function signAttempt(
  signer: Signer,
  payout: Pick<Row<"payouts">, "id" | "chain_id" | "to_address" | "data" | "value"> & {
    wallet: Address
    nonce: bigint
  },
  { n, gas, maxFee, tip, dataFee }: Fees & { n: number; gas: bigint; dataFee: bigint },
): Promise<Insertable<Database["transaction_attempts"]>> {
  const { id, chain_id: chainId, wallet, nonce, to_address: to, data, value } = payout
  const asked: UnsignedTransaction = {
    chainId,
    nonce: nonceNumber(nonce),
    to,
    data,
    value,
    gas,
    maxFeePerGas: maxFee,
    maxPriorityFeePerGas: tip,
  }
  const raw = await signer.sign(asked)
  assertSigned(raw, wallet, asked)
  const hash = keccak256(raw) as Hash
  return { payout_id: id, chain_id: chainId, wallet, nonce, n, raw, hash, gas, max_fee: maxFee, tip, data_fee: dataFee }
}

/** A nonce is far below 2⁵³; viem wants a number. */
const nonceNumber = (nonce: bigint): number => Number.parseInt(nonce.toString(), 10)

function assertSigned(raw: Hex, wallet: Address, asked: UnsignedTransaction): void {
  const said = parseTransaction(raw as `0x02${string}`)
  // Zeros are left out of a transaction's bytes.
  const differs = (Object.keys(asked) as (keyof UnsignedTransaction)[]).find(
    name => quantity((said as Partial<UnsignedTransaction>)[name]) !== quantity(asked[name]),
  )
  if (differs) throw new Error(`the signed transaction has another ${differs} than the request`)
  const { r = "0x0", s = "0x0", yParity = 0 } = said
  // Of what was asked, so that bytes with anything more are signed by nobody.
  const digest = keccak256(serializeTransaction({ type: "eip1559", ...asked }))
  const signer = recoverSigner(digest, serializeSignature({ r, s, yParity }))
  if (signer !== wallet) throw new Error(`the signer signed as ${signer ?? "nobody"}, not as the wallet ${wallet}`)
}

/** Any field of a transaction as a number; an empty field is 0. */
const quantity = (field: Hex | number | bigint | undefined): bigint =>
  field === undefined || field === "0x" ? 0n : BigInt(field)
