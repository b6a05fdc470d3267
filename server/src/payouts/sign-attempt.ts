/** Signs transactions, and checks each signed transaction against the request before it is stored. */
// I/O: waits for the signer that it is given, which may be a device.
import type { Insertable } from "kysely"
import { type Hex, keccak256, parseTransaction, recoverTransactionAddress } from "viem"
import type { Fees } from "../chain/fees.ts"
import type { Address, Hash } from "../chain/hex.ts"
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
  await assertSigned(raw, wallet, asked)
  const hash = keccak256(raw) as Hash
  return { payout_id: id, chain_id: chainId, wallet, nonce, n, raw, hash, gas, max_fee: maxFee, tip, data_fee: dataFee }
}

/** A nonce is far below 2⁵³; viem wants a number. */
const nonceNumber = (nonce: bigint): number => Number.parseInt(nonce.toString(), 10)

async function assertSigned(raw: Hex, wallet: Address, asked: UnsignedTransaction): Promise<void> {
  const serializedTransaction = raw as `0x02${string}`
  const signer = (await recoverTransactionAddress({ serializedTransaction })).toLowerCase()
  if (signer !== wallet) throw new Error(`the signer signed as ${signer}, not as the wallet ${wallet}`)
  const said = parseTransaction(serializedTransaction) as Partial<UnsignedTransaction>
  // Zeros are left out of a transaction's bytes.
  const differs = (Object.keys(asked) as (keyof UnsignedTransaction)[]).find(
    name => quantity(said[name]) !== quantity(asked[name]),
  )
  if (differs) throw new Error(`the signed transaction has another ${differs} than the request`)
}

/** Any field of a transaction as a number; an empty field is 0. */
const quantity = (field: Hex | number | bigint | undefined): bigint =>
  field === undefined || field === "0x" ? 0n : BigInt(field)
