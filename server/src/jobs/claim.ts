/**
 * Leases on rows that are jobs: the one place that knows them. A claimed row belongs to its `claim_id` until
 * `lease_until`, by the database's clock; every later write names the claim, so that a worker which lost its lease
 * changes nothing.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Db } from "../db/open.ts"
import type { Database, Row } from "../db/schema.ts"

/** The tables whose rows are jobs: `run_at`, `claim_id`, `lease_until` and a primary key. */
interface JobTables {
  cursors: "chain_id"
  wallets: "id"
  reconciliations: "chain_id"
}

/** As much of a delivery as its worker needs; a date costs more to parse than all of these. */
const inTurn = [
  "id",
  "event_id",
  "merchant_id",
  "webhook_id",
  "url",
  "lane",
  "by_hand",
  "attempts",
  "claim_id",
] as const

/** A row that was claimed in turn. */
export type InTurn = Pick<Row<"deliveries">, (typeof inTurn)[number]>

/**
 * Gives back what killed processes held: leases on jobs, and reservations of idempotency keys, whose work was never
 * committed. Only where this process is the only one.
 */
export async function freeLeases(db: Db): Promise<void> {
  const none = { claim_id: null, lease_until: null }
  await db.updateTable("cursors").set(none).execute()
  await db.updateTable("deliveries").set(none).where("claim_id", "is not", null).execute()
  await db.updateTable("wallets").set(none).execute()
  await db.updateTable("reconciliations").set(none).execute()
  await db.deleteFrom("idempotency_keys").where("claim_id", "is not", null).execute()
}

/**
 * Takes up to `limit` due rows that nobody holds, for `leaseMs`, earliest first, and makes them due again at `nextRunAt`, so
 * that a row whose worker dies comes back by itself. `only` names one row.
 * `FOR NO KEY UPDATE SKIP LOCKED`: rivals neither wait for each other nor take the same row.
 */
export async function claimDue<T extends keyof JobTables & keyof Database>(
  db: Db,
  job: {
    table: T
    key: JobTables[T]
    only?: string | number
    now: Date
    nextRunAt: Date
    limit: number
    leaseMs: number
  },
): Promise<Row<T>[]> {
  const only = job.only === undefined ? sql`true` : sql`${sql.ref(job.key)} = ${job.only}`
  const result = await sql<Row<T>>`
    update ${sql.table(job.table)} set claim_id = ${randomUUID()}, run_at = ${job.nextRunAt},
      lease_until = clock_timestamp() + make_interval(secs => ${job.leaseMs / 1_000})
    where ${sql.ref(job.key)} in (
      select ${sql.ref(job.key)} from ${sql.table(job.table)}
      where run_at <= ${job.now} and (lease_until is null or lease_until < clock_timestamp()) and ${only}
      order by run_at limit ${job.limit} for no key update skip locked)
    returning *`.execute(db)
  return result.rows
}

/**
 * Takes due rows of many lanes in turn: the first of each, then the second of each, up to `limit`; of a lane up to
 * `perLane` less what `taken` says. A row waits for an earlier one of its lane and `order_key` that was never tried.
 * `afterLane` is where the turn goes on; the answer says where to go on next, "" when all lanes were seen.
 *
 * The lanes are found by hops through the index, one for each, so that 100,000 rows of one lane cost the others nothing; a
 * plain `order by run_at` would read all of them whenever that lane is full. What a row waits for is looked up with a
 * `limit 1`: as a `not exists` it is planned as a join that reads all of the lane (66 ms beside 100,000 rows, not 3). Only the lease is written: `run_at` is in an
 * index, and a row that stays where it was in all of its indexes costs a third (measured); its lease keeps it from others.
 */
export async function claimInTurn(
  db: Db,
  job: {
    /** Has `lane`, `order_key`, `seq`, `attempts`, and a `status` that is `pending` while something is to be done. */
    table: "deliveries"
    now: Date
    leaseMs: number
    limit: number
    perLane: number
    taken: ReadonlyMap<string, number>
    afterLane: string
    /** Lanes that are looked at in one call. */
    lanes: number
  },
): Promise<{ rows: InTurn[]; nextLane: string }> {
  const table = sql.table(job.table)
  const held = sql`lease_until >= clock_timestamp()`
  const columns = sql.join(inTurn.map(name => sql.ref(name)))
  const result = await sql<InTurn & { next_lane: string }>`
    with recursive lanes as (
      (select lane, 1 as n from ${table} where status = 'pending' and lane > ${job.afterLane} order by lane limit 1)
      union all
      select (select t.lane from ${table} t where t.status = 'pending' and t.lane > l.lane order by t.lane limit 1), l.n + 1
      from lanes l where l.lane is not null and l.n < ${job.lanes}
    ),
    taken as (select key as lane, value::int as n from jsonb_each_text(${JSON.stringify(Object.fromEntries(job.taken))}::jsonb)),
    due as (
      select d.ctid, row_number() over (partition by l.lane order by d.run_at, d.seq) as turn
      from lanes l left join taken on taken.lane = l.lane
      cross join lateral (
        select t.ctid, run_at, seq from ${table} t
        where t.lane = l.lane and t.status = 'pending' and t.run_at <= ${job.now} and (t.lease_until is null or not ${held})
          and t.seq <= coalesce((select e.seq from ${table} e where e.lane = t.lane and e.order_key = t.order_key
            and e.status = 'pending' and e.attempts = 0 order by e.seq limit 1), t.seq)
        order by t.run_at limit greatest(${job.perLane}::int - coalesce(taken.n, 0), 0)
        for no key update of t skip locked) d
    ),
    claimed as (
      update ${table} set claim_id = ${randomUUID()},
        lease_until = clock_timestamp() + make_interval(secs => ${job.leaseMs / 1_000})
      where ctid = any(array(select ctid from due order by turn limit ${job.limit}))
      returning seq, ${columns}
    )
    select ${columns}, last.next_lane
    from (select coalesce((select lane from lanes where n = ${job.lanes}), '') as next_lane) last
      left join claimed on true
    order by claimed.seq`.execute(db)
  // Without a claim there is one row that tells only where the turn goes on.
  const rows = result.rows.filter(row => (row.id as string | null) !== null)
  return { rows, nextLane: result.rows[0]?.next_lane ?? "" }
}
