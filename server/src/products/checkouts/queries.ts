/** The rows of a checkout's status. Whoever reads at the same time shares each statement, however many checkouts. */
import { sql } from "kysely"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/** A session by its id. */
export const sessionRow = gatherRows(async (db: Db, ids: readonly string[]) => {
  const rows = await db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where(sql<boolean>`id = any(${sqlArray("text", ids)})`)
    .execute()
  return new Map(rows.map(row => [row.id, row]))
})

/** The receiving address of a session, which has one unless an escrow is paid. */
export const depositOfSession = gatherRows(async (db: Db, ids: readonly string[]) => {
  const rows = await db
    .selectFrom("deposits")
    .select(["id", "resource_id", "chain_id", "factory", "older_factory", "address"])
    .where(sql<boolean>`resource_id = any(${sqlArray("text", ids)})`)
    .execute()
  return new Map(rows.map(row => [row.resource_id, row]))
})

/** The key of {@link returnedAt}: a session and its settlement token. */
export const returnedKey = (sessionId: string, token: Address): string => `${sessionId} ${token}`

/**
 * What merchants have returned of the money that came for sessions, in base units, by {@link returnedKey}: whole payments,
 * and surpluses. A session of which nothing was returned has no entry.
 */
export async function returnedAt(db: Db, keys: readonly string[]): Promise<Map<string, bigint>> {
  const wanted = keys.map(key => ({ key, id: key.slice(0, -43), token: key.slice(-42) }))
  const { rows } = await sql<{ key: string; returned: bigint }>`
    select /* named: returned_at */ k.key, sum(case p.status when 'returned' then p.amount else s.amount end)::numeric(78,0) as returned
    from (${rowsParameter(wanted, "key text, id text, token text")}) k
      join payments p on p.resource_id = k.id and p.token = k.token
      left join surpluses s on s.payment_id = p.id and s.state = 'returned'
    where p.status = 'returned' or (p.status = 'granted' and s.amount is not null)
    group by k.key`.execute(db)
  return new Map(rows.map(row => [row.key, row.returned]))
}

/** The same for one session. */
export const returnedOf = gatherRows(returnedAt)

/** How many blocks are above a session's newest transfer; undefined without one. */
export const aboveTransfer = gatherRows(async (db: Db, ids: readonly string[]) => {
  const { rows } = await sql<{ id: string; above: bigint }>`
    select /* named: above_transfers */ k.id, c.block_number - t.block_number as above
    from (${rowsParameter(
      ids.map(id => ({ id })),
      "id text",
    )}) k join deposits d on d.resource_id = k.id
      cross join lateral (select t.chain_id, t.block_number from transfers t
        where t.deposit_id = d.id and t.state <> 'gone' order by t.block_number desc limit 1) t
      join cursors c on c.chain_id = t.chain_id`.execute(db)
  return new Map(rows.map(row => [row.id, row.above]))
})

/** How many blocks are above the reservation of a session's escrow; undefined without one. */
export const aboveReservation = gatherRows(async (db: Db, ids: readonly string[]) => {
  const { rows } = await sql<{ id: string; above: bigint }>`
    select /* named: above_reservations */ i.escrow_id as id, c.block_number - i.block_number as above
    from payouts i join cursors c on c.chain_id = i.chain_id
    where i.escrow_id = any(${sqlArray("text", ids)}) and i.kind = 'reserve' and i.succeeded
      and i.block_number is not null`.execute(db)
  return new Map(rows.map(row => [row.id, row.above]))
})

type SubmissionShown = Pick<Row<"submissions">, "tx_hash" | "status" | "reason" | "message">

/** The key of {@link submissionShown}: a session, and the hash that is asked for; without one, the newest counts. */
export const submissionKey = (sessionId: string, txHash: Hash | undefined): string =>
  JSON.stringify([sessionId, txHash ?? null])

/** A submission of a session. */
export const submissionShown = gatherRows(async (db: Db, keys: readonly string[]) => {
  const wanted = keys.map((key, n) => {
    const [id, hash] = JSON.parse(key) as [string, string | null]
    return { n, id, hash }
  })
  const { rows } = await sql<SubmissionShown & { n: number }>`
    select /* named: submissions_shown */ k.n, s.tx_hash, s.status, s.reason, s.message
    from (${rowsParameter(wanted, "n integer, id text, hash text")}) k
      cross join lateral (select * from submissions where resource_id = k.id and (k.hash is null or tx_hash = k.hash)
        order by submitted_at desc, id desc limit 1) s`.execute(db)
  return new Map(rows.map(({ n, ...row }) => [keys[n] ?? "", row as SubmissionShown]))
})
