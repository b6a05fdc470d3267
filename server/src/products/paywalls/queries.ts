/** Reads the rows of a paywall's state. Concurrent reads share each statement, however many paywalls they ask about. */
import { sql } from "kysely"
import { wasAskedFor, watchEnds } from "../../ledger/deposits/make-deposits.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/** A paywall by its id. */
export const paywallRow = gatherRows(async (db: Db, ids: readonly string[]) => {
  const rows = await db
    .selectFrom("paywalls")
    .selectAll()
    .where(sql<boolean>`id = any(${sqlArray("text", ids)})`)
    .execute()
  return new Map(rows.map(row => [row.id, row]))
})

/** The paywall of a submission: its network, and whether the watch of its addresses must be extended. */
export const paidPaywall = gatherRows(async (db: Db, asked: readonly { id: string; now: Date }[]) => {
  const wanted = asked.map(({ id }, n) => ({ n, id }))
  const { rows } = await sql<{ n: number; chain_id: number; is_watch_ending: boolean }>`
    select /* named: paid_paywalls */ k.n, p.chain_id, exists (select from deposits d where d.resource_id = p.id
        and (${watchEnds(asked[0]?.now ?? new Date())} or not ${wasAskedFor("d")})) as is_watch_ending
    from (${rowsParameter(wanted, "n integer, id text")}) k join paywalls p on p.id = k.id`.execute(db)
  return new Map(rows.flatMap(row => (asked[row.n] ? [[asked[row.n] as { id: string; now: Date }, row]] : [])))
})

/** A paywall's current receiving address, and its factory. */
export const paidNow = gatherRows(async (db: Db, ids: readonly string[]) => {
  const rows = await db
    .selectFrom("paywall_versions")
    .innerJoin("deposits", "deposits.id", "paywall_versions.deposit_id")
    .select(["paywall_versions.paywall_id", "deposits.address", "deposits.factory", "deposits.older_factory"])
    .where(sql<boolean>`paywall_versions.paywall_id = any(${sqlArray("text", ids)})`)
    .where("until_at", "is", null)
    .execute()
  return new Map(rows.map(({ paywall_id, ...row }) => [paywall_id, row]))
})

/** The key of {@link submittedPayment} and {@link seenPayment}. */
export const paymentKey = (paywallId: string, txHash: Hash, address: Address): string =>
  `${paywallId} ${txHash} ${address}`

/** SQL: the given keys as rows. */
const given = (keys: readonly string[]) => {
  const wanted = keys.map(key => {
    const [id, hash, payer] = key.split(" ")
    return { key, id, hash, payer }
  })
  return rowsParameter(wanted, "key text, id text, hash text, payer text")
}

type Submitted = Pick<Row<"submissions">, "status" | "reason" | "message" | "block_number">

/** A payer's submission of a hash. */
export const submittedPayment = gatherRows(async (db: Db, keys: readonly string[]) => {
  const { rows } = await sql<Submitted & { key: string }>`
    select /* named: submitted_payments */ k.key, s.status, s.reason, s.message, s.block_number from (${given(keys)}) k
      join submissions s on s.resource_id = k.id and s.tx_hash = k.hash and s.address = k.payer`.execute(db)
  return new Map(rows.map(({ key, ...row }) => [key, row as Submitted]))
})

type SeenPayment = Pick<Row<"transfers">, "block_number"> & {
  status: Row<"payments">["status"] | null
  exception: Row<"payments">["exception"] | null
}

/**
 * A payer's transfer in a transaction, with the payment that claims it. If there are several, one that was granted is
 * returned.
 */
export const seenPayment = gatherRows(async (db: Db, keys: readonly string[]) => {
  const { rows } = await sql<SeenPayment & { key: string }>`
    select /* named: seen_payments */ k.key, t.block_number, t.status, t.exception from (${given(keys)}) k cross join lateral (
      select t.block_number, p.status, p.exception from deposits d join transfers t on t.deposit_id = d.id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
      where d.resource_id = k.id and t.tx_hash = k.hash and t.from_address = k.payer
      order by (p.status = 'granted') desc nulls last limit 1) t`.execute(db)
  return new Map(rows.map(({ key, ...row }) => [key, row as SeenPayment]))
})
