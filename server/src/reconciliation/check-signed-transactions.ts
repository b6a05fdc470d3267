/**
 * Compares what is signed, or about to be, with the rows: a payout's calldata with its deposit, token, recipient, amount and id,
 * an attempt's bytes with that calldata, and a deposit's address with its terms.
 */
import { sql } from "kysely"
import { type Hex, keccak256, parseTransaction } from "viem"
import type { Address, Hash } from "../chain/hex.ts"
import { releaseData, withoutId } from "../chain/release-call.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { depositAddress, depositImplementation } from "../deposits/address.ts"
import { outgoingKinds } from "../deposits/balance.ts"
import type { Finding } from "./report.ts"

type Terms = Pick<Row<"deposits">, "factory" | "salt" | "owner" | "open_after_s">

/** A payout with its deposit and all that was signed for it. */
export type SignedPayout = Row<"payouts"> & {
  deposit: Address
  terms: { factory: Address; salt: Hash; owner: Address; open_after_s: string }
  attempts: { id: string; raw: Hex; hash: Hash }[]
}

/** Payouts out of deposits, with their signed bytes, in the order of their ids. */
export async function signedPayouts(
  ctx: Context,
  chainId: number,
  which: ReturnType<typeof sql>,
  limit: number,
): Promise<SignedPayout[]> {
  const { rows } = await sql<SignedPayout>`
    select i.*, d.address as deposit,
      json_build_object('factory', d.factory, 'salt', d.salt, 'owner', d.owner, 'open_after_s', d.open_after_s::text) as terms,
      (select coalesce(json_agg(json_build_object('id', a.id::text, 'raw', a.raw, 'hash', a.hash)), '[]'::json)
        from transaction_attempts a where a.payout_id = i.id) as attempts
    from payouts i join deposits d on d.id = i.deposit_id
    where i.chain_id = ${chainId} and i.kind in ${outgoingKinds} and ${which} order by i.id limit ${limit}`.execute(
    ctx.db,
  )
  return rows
}

/** The first calldata or signed transaction of a payout that differs from its row. */
export function checkPayout(payout: SignedPayout): Finding | undefined {
  const { id, terms, to_address: to, data, token, recipient, amount, nonce } = payout
  const deposit = { salt: terms.salt, owner: terms.owner, open_after_s: BigInt(terms.open_after_s) }
  if (data !== releaseData(id, deposit, { token, recipient, amount }) || to !== terms.factory)
    return {
      table: "payouts",
      id,
      words: `the row ${id} of payouts says ${amount} of ${token} from ${payout.deposit} to ${recipient}; its calldata says another thing`,
    }
  for (const { id: attemptId, raw, hash } of payout.attempts) {
    const wrong = wrongIn(payout, raw, hash, nonce)
    if (wrong)
      return {
        table: "transaction_attempts",
        id: attemptId,
        words: `the row ${attemptId} of transaction_attempts is not what it is for, the payout ${id}: ${wrong}`,
      }
  }
  return undefined
}

function wrongIn(payout: SignedPayout, raw: Hex, hash: Hash, nonce: bigint | null): string | undefined {
  let said: ReturnType<typeof parseTransaction>
  try {
    if (keccak256(raw) !== hash) return "its bytes have another hash"
    said = parseTransaction(raw)
  } catch {
    return "its bytes are no transaction"
  }
  if (said.chainId !== payout.chain_id || BigInt(said.nonce ?? 0) !== nonce)
    return "its bytes have another nonce or chain"
  const to = said.to?.toLowerCase()
  // An empty transfer of the wallet to itself, by which a person uses up a nonce, moves nobody's money.
  if (to === payout.wallet && (said.value ?? 0n) === 0n && (said.data ?? "0x") === "0x") return undefined
  // A transaction that was adopted from the chain may end with the id of a payout that an old backup does not have.
  if (
    to !== payout.to_address ||
    withoutId(said.data ?? "0x") !== withoutId(payout.data) ||
    (said.value ?? 0n) !== payout.value
  )
    return "its bytes say another thing"
  return undefined
}

/** A finding when a deposit's address does not follow from its terms. */
export function checkTerms(deposit: Terms & { id: bigint; address: Address }): Finding | undefined {
  const { factory, salt, owner, open_after_s: openAfter } = deposit
  const implementation = depositImplementation(factory)
  if (depositAddress({ factory, implementation, salt, owner, openAfter }) === deposit.address) return undefined
  const id = `${deposit.id}`
  return {
    table: "deposits",
    id,
    words: `the row ${id} of deposits has other terms than its address ${deposit.address}`,
  }
}
