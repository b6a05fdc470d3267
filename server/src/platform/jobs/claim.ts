/**
 * Leases on rows that are jobs. A claimed row belongs to its `claim_id` until `lease_until`, by the database's clock.
 * Every later write names the claim, so a worker that lost its lease changes nothing. If a worker dies, its lease
 * expires and the row can be claimed again.
 */
import { randomUUID } from "node:crypto"
import { type RawBuilder, sql } from "kysely"
import type { Db } from "../db/open.ts"
import type { Row } from "../db/schema.ts"

/** The tables whose rows are jobs, with their primary keys. All have `run_at`, `claim_id` and `lease_until`. */
const keys = {
  cursors: "chain_id",
  wallets: "id",
  reconciliations: "chain_id",
  deliveries: "id",
  token_scans: "chain_id",
  outflow_watches: "chain_id",
  receipt_rounds: "chain_id",
} as const
type JobTable = keyof typeof keys
type Claimed<T extends JobTable> = Pick<Row<T>, (typeof keys)[T] & keyof Row<T>> & { claim_id: string | null }

/** What to claim, and for how long. */
interface Job<T extends JobTable> {
  table: T
  now: Date
  /**
   * When the claimed row is due again. This time is written with the claim, so the row becomes due even if the worker
   * dies.
   */
  nextRunAt: Date
  /** How long the lease lasts at most, in milliseconds. {@link withLease} takes and renews it in parts. */
  leaseMs: number
}

/** The longest time until a killed worker's row is free, however long the work may take. */
const PART_MS = 30_000
const RENEWAL_MS = PART_MS / 3
/** The pause before retrying to release a lease. */
const RELEASE_RETRY_MS = 500

/** The clocks of two processes differ by less than this. */
const MAX_SKEW_MS = 600_000

/**
 * Whether a job that runs every `periodMs` is due at `at`. The job is also due if `at` is more than a period ahead.
 * Such a time was set by a clock that was ahead. The job would otherwise not run until the correct time catches up.
 */
export const isDue = (at: Date, now: Date, periodMs: number): boolean =>
  at <= now || at.getTime() > now.getTime() + periodMs + MAX_SKEW_MS

/**
 * Frees what killed processes held: leases, and reservations of idempotency keys whose work was never committed. Call
 * it only if this is the only process.
 */
export async function freeLeases(db: Db): Promise<void> {
  const none = { claim_id: null, lease_until: null }
  await db.updateTable("cursors").set(none).execute()
  // Another program holds the events that it pulled from a listener, and may still report them.
  const isSent = sql<boolean>`not starts_with(lane, 'lsn_')`
  await db.updateTable("deliveries").set(none).where("claim_id", "is not", null).where(isSent).execute()
  await db.updateTable("wallets").set(none).execute()
  await db.updateTable("reconciliations").set(none).execute()
  await db.updateTable("token_scans").set(none).execute()
  await db.updateTable("outflow_watches").set(none).execute()
  await db.updateTable("receipt_rounds").set(none).execute()
  await db.deleteFrom("idempotency_keys").where("claim_id", "is not", null).execute()
}

/**
 * Claims up to `limit` due rows without a lease, earliest first, for `leaseMs`. `only` names one row. A row that is due
 * well after `nextRunAt` was claimed by a process whose clock was ahead, so it is due now.
 * `FOR NO KEY UPDATE SKIP LOCKED`: concurrent workers neither wait for each other nor claim the same row.
 */
export async function claimDue<T extends JobTable>(
  db: Db,
  job: Job<T> & { only?: string | number; limit: number },
): Promise<Row<T>[]> {
  const key = sql.ref(keys[job.table])
  const only = job.only === undefined ? sql`true` : sql`${key} = ${job.only}`
  const ahead = new Date(job.nextRunAt.getTime() + MAX_SKEW_MS)
  const result = await sql<Row<T>>`
    update ${sql.table(job.table)} set claim_id = ${randomUUID()}, run_at = ${job.nextRunAt},
      lease_until = clock_timestamp() + make_interval(secs => ${job.leaseMs / 1_000})
    where ${key} in (
      select ${key} from ${sql.table(job.table)}
      where (run_at <= ${job.now} or run_at > ${ahead}) and (lease_until is null or lease_until < clock_timestamp()) and ${only}
      order by run_at limit ${job.limit} for no key update skip locked)
    returning *`.execute(db)
  return result.rows
}

/**
 * Runs `work` on one row under a lease, and releases the lease afterwards, even if `work` throws. The lease is renewed
 * while `work` runs, up to `leaseMs`: a worker that hangs loses the row then, and a killed one within 30 seconds.
 * Returns false, and runs nothing, if the row is not due or another worker holds its lease.
 */
export async function withLease<T extends JobTable>(
  db: Db,
  job: Job<T> & { only: string | number },
  work: (row: Row<T>) => Promise<void>,
): Promise<boolean> {
  const partMs = Math.min(job.leaseMs, PART_MS)
  const [row] = await claimDue(db, { ...job, leaseMs: partMs, limit: 1 })
  if (!row) return false
  const claimed = row as Claimed<T> & { lease_until: Date }
  const end = new Date(claimed.lease_until.getTime() + job.leaseMs - partMs)
  const renew = () => void renewLease(db, job.table, claimed, end).catch(() => undefined)
  const renewal = job.leaseMs > partMs ? setInterval(renew, RENEWAL_MS) : undefined
  try {
    await work(row)
  } finally {
    clearInterval(renewal)
    await releaseLease(db, job.table, claimed).catch(error => {
      releaseLater(db, job.table, claimed)
      throw error
    })
  }
  return true
}

/** Extends the lease on a claimed row to 30 seconds from now, but not past `end`. */
async function renewLease<T extends JobTable>(db: Db, table: T, claimed: Claimed<T>, end: Date): Promise<void> {
  const until = sql`least(clock_timestamp() + make_interval(secs => ${PART_MS / 1_000}), ${end})`
  await sql`update ${sql.table(table)} set lease_until = ${until} where ${isHeld(table, claimed)}`.execute(db)
}

/**
 * Releases a lease once the database is back, because nobody works on its row until then. Stops once the lease has
 * expired.
 */
function releaseLater<T extends JobTable>(
  db: Db,
  table: T,
  claimed: Claimed<T>,
  triesLeft = PART_MS / RELEASE_RETRY_MS,
) {
  if (triesLeft === 0) return
  const again = () => releaseLease(db, table, claimed).catch(() => releaseLater(db, table, claimed, triesLeft - 1))
  setTimeout(() => void again(), RELEASE_RETRY_MS).unref()
}

/** Releases the lease on a claimed row, unless another worker has claimed the row since. */
export async function releaseLease<T extends JobTable>(db: Db, table: T, claimed: Claimed<T>): Promise<void> {
  await sql`update ${sql.table(table)} set claim_id = null, lease_until = null where ${isHeld(table, claimed)}`.execute(
    db,
  )
}

/**
 * The condition of each write to a claimed row: the row's key and its claim, so that a worker that lost its lease
 * changes nothing.
 */
export function isHeld<T extends JobTable>(table: T, claimed: Claimed<T>): RawBuilder<boolean> {
  const key = keys[table]
  const id = (claimed as Record<string, unknown>)[key]
  return sql<boolean>`${sql.ref(key)} = ${id} and claim_id = ${claimed.claim_id}`
}
