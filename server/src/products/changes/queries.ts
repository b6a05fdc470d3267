/**
 * SQL of changes. Their order is that of their transactions' numbers, and within one that of `n`. A read stops below the
 * oldest transaction that still runs: only above it can a change become visible later. So what was read is never added to.
 * Transactions that ran at the same time may be in either order; a message shows its object as it stands when it is read.
 */
import { type RawBuilder, sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Position } from "./position.ts"

/** A change, without its object. */
export interface Change extends Position {
  merchantId: string
  kind: Row<"changes">["kind"]
  objectId: string
  at: Date
}

/** Some changes in their order, and what was true when they were read. */
export interface Page {
  changes: Change[]
  /** All changes up to here are read. */
  end: Position
  /** Whether there may be more. */
  isFull: boolean
  now: Now
}

/** The state of the database's transactions. */
export interface Now {
  /** Another one after a restore or a failover: numbers of transactions may then be given again. */
  epoch: string
  /** The oldest transaction that still runs. */
  xmin: bigint
  /** No transaction has begun from this number on. */
  xmax: bigint
  /** The first change that is kept: earlier ones may be gone. Undefined where there is none. */
  first: Position | undefined
}

/**
 * SQL: names the history of transactions. `pg_control_system` differs by installation of Postgres, the name of the log's file begins with
 * the timeline, which each failover changes, and a database that is restored beside another has another oid.
 */
const epoch = sql<string>`(select left(md5(concat_ws(' ', c.system_identifier, left(pg_walfile_name(pg_current_wal_lsn()), 8), d.oid)), 8)
  from pg_control_system() c, pg_database d where d.datname = current_database())`

interface ReadRow {
  epoch: string
  xmin: string
  xmax: string
  first_xid: string | null
  first_n: bigint | null
  xid: string | null
  n: bigint
  merchant_id: string
  kind: Row<"changes">["kind"]
  object_id: string
  at: Date
}

/** Reads changes of some merchants after a position, in their order; from now on without one. */
export const changesAfter = (
  ctx: TxContext,
  merchants: readonly string[],
  after: Position | undefined,
  limit: number,
) => read(ctx, sql`/* named: changes_after */`, sql`merchant_id = any(${sqlArray("text", merchants)})`, after, limit)

/** The same of one merchant, by its own index: there may be a day between the position and now. */
export const changesOf = (ctx: TxContext, merchantId: string, after: Position | undefined, limit: number) =>
  read(ctx, sql`/* named: changes_of */`, sql`merchant_id = ${merchantId}`, after, limit)

/** Nothing comes after it. */
const END: Position = { xid: 2n ** 64n - 1n, n: 0n }

async function read(
  { db }: TxContext,
  name: RawBuilder<unknown>,
  whose: RawBuilder<unknown>,
  { xid, n }: Position = END,
  limit: number,
): Promise<Page> {
  // One statement, so that the bound and the rows are of one snapshot.
  const { rows } = await sql<ReadRow>`${name}
    with now as materialized (select pg_current_snapshot() as s)
    select ${epoch} as epoch, pg_snapshot_xmin(s)::text as xmin, pg_snapshot_xmax(s)::text as xmax,
      f.xid::text as first_xid, f.n as first_n, c.xid::text as xid, c.n, c.merchant_id, c.kind, c.object_id, c.at
    from now
      left join lateral (select xid, n from changes order by xid, n limit 1) f on true
      left join lateral (select * from changes where (xid, n) > (${`${xid}`}::xid8, ${n}::bigint) and xid < pg_snapshot_xmin(s) and ${whose}
        order by xid, n limit ${limit}) c on true
    order by c.xid, c.n`.execute(db)
  const [row] = rows
  if (!row) throw new Error("no snapshot was read")
  const changes = rows.flatMap(({ xid, n, merchant_id: merchantId, kind, object_id: objectId, at }) =>
    xid === null ? [] : [{ xid: BigInt(xid), n, merchantId, kind, objectId, at }],
  )
  const now = {
    epoch: row.epoch,
    xmin: BigInt(row.xmin),
    xmax: BigInt(row.xmax),
    first: row.first_xid === null ? undefined : { xid: BigInt(row.first_xid), n: row.first_n ?? 0n },
  }
  const last = changes.at(-1)
  const isFull = changes.length === limit
  return { changes, isFull, now, end: isFull && last ? { xid: last.xid, n: last.n } : { xid: now.xmin, n: 0n } }
}

/** How many changes one statement removes. */
const BATCH = 5_000
const DAY_MS = 86_400_000

/**
 * Removes the changes of more than 24 hours ago, by the database's clock, but for the newest of them: whoever asks for changes after an
 * earlier one may have missed some. Those are removed first that a restored database brought with numbers that are not given yet.
 */
export async function forgetOldChanges({ db }: TxContext): Promise<void> {
  await sql`delete from changes where xid >= pg_snapshot_xmax(pg_current_snapshot())`.execute(db)
  for (;;) {
    const { rows } = await sql<{ xid: string; n: bigint; age: number }>`
      select xid::text, n, extract(epoch from clock_timestamp() - at)::float8 * 1000 as age
      from changes order by xid, n limit ${BATCH}`.execute(db)
    const young = rows.findIndex(({ age }) => age < DAY_MS)
    const old = young === -1 ? rows : rows.slice(0, young)
    const last = old.at(-1)
    if (!last || old.length < 2) return
    await sql`delete from changes where (xid, n) < (${last.xid}::xid8, ${last.n}::bigint)`.execute(db)
    if (old.length < BATCH) return
  }
}
