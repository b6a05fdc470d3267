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
}

/**
 * Gives back what killed processes held: leases on jobs, and reservations of idempotency keys, whose work was never
 * committed. Only where this process is the only one.
 */
export async function freeLeases(db: Db): Promise<void> {
  await db.updateTable("cursors").set({ claim_id: null, lease_until: null }).execute()
  await db.updateTable("wallets").set({ claim_id: null, lease_until: null }).execute()
  await db.deleteFrom("idempotency_keys").where("claim_id", "is not", null).execute()
}

/**
 * Takes up to `limit` due rows that nobody holds, for `leaseMs`, earliest first, and makes them due again at `nextRunAt`, so
 * that a row whose worker dies comes back by itself. `only` names one row.
 * `FOR UPDATE SKIP LOCKED`: rivals neither wait for each other nor take the same row.
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
      order by run_at limit ${job.limit} for update skip locked)
    returning *`.execute(db)
  return result.rows
}
