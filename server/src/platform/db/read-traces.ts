/** Finds the trace to continue. Only a process that traces calls this code. */
import { sql } from "kysely"
import type { Hash } from "../chain/hex.ts"
import type { Db } from "./open.ts"
import { sqlArray } from "./sql-array.ts"

/**
 * SQL: the trace of the relay that made a transfer `t`. The relay's buyer asked for the payment, whoever created the
 * resource. A transaction may execute the relays of several buyers.
 */
const ofRelay = sql`(select i.traceparent from transaction_attempts a
  join payouts i on i.id = a.payout_id or i.batch_id = a.payout_id where a.hash = t.tx_hash and i.lane = 'relay'
  order by i.payer is not distinct from t.from_address and i.recipient = t.to_address desc, i.created_at limit 1)`

/**
 * SQL: the trace of a session. An agent pays its session with a later request than the one that created the session,
 * and the session continues the later trace.
 */
const ofSession = (id: ReturnType<typeof sql>) => sql`coalesce((select i.traceparent from deposits d
    join payouts i on i.deposit_id = d.id where d.resource_id = ${id} and i.lane = 'relay' and i.traceparent is not null
    order by i.created_at desc limit 1),
  (select s.traceparent from checkout_sessions s where s.id = ${id}))`

/** SQL: the trace of the payment by a transfer `t` to a deposit `d`; null if nobody asked for it. */
const ofTransfer = sql<string | null>`coalesce(${ofRelay}, ${ofSession(sql`d.resource_id`)},
  (select s.traceparent from submissions s where s.resource_id = d.resource_id and s.tx_hash = t.tx_hash
    and s.traceparent is not null order by s.id limit 1))`

/** Returns the trace of a checkout session; null if it has none. */
export async function traceOfSession(db: Db, id: string): Promise<string | null> {
  const { rows } = await sql<{
    traceparent: string | null
  }>`select ${ofSession(sql`${id}::text`)} as traceparent`.execute(db)
  return rows[0]?.traceparent ?? null
}

/** Returns the trace of a resource's payment by these transactions; null if nobody asked for it. */
export async function traceOfPayment(
  db: Db,
  { id, resourceId, hashes }: { id: string | undefined; resourceId: string; hashes: readonly Hash[] },
): Promise<string | null> {
  const { rows } = await sql<{ traceparent: string | null }>`
    select coalesce((select p.traceparent from payments p where p.id = ${id ?? null}), (select min(${ofTransfer})
      from transfers t join deposits d on d.id = t.deposit_id
      where d.resource_id = ${resourceId} and t.tx_hash = any(${sqlArray("text", new Set(hashes))}))) as traceparent`.execute(
    db,
  )
  return rows[0]?.traceparent ?? null
}

/** A transfer with the trace of its payment. */
export interface TracedTransfer {
  tx_hash: Hash
  state: string
  resource_id: string
  traceparent: string
}

/** Returns these transfers, and those just seen at these deposits, if they have traces; at most `limit`. */
export async function tracedTransfers(
  db: Db,
  ids: readonly bigint[],
  deposits: readonly bigint[],
  limit: number,
): Promise<TracedTransfer[]> {
  const { rows } = await sql<TracedTransfer>`select * from (
    select t.id, t.tx_hash, t.state, d.resource_id, ${ofTransfer} as traceparent
    from transfers t join deposits d on d.id = t.deposit_id
    where t.id = any(${sqlArray("bigint", ids)})
      or (t.deposit_id = any(${sqlArray("bigint", new Set(deposits))}) and t.state = 'seen')) found
    where traceparent is not null order by id limit ${limit}`.execute(db)
  return rows
}
