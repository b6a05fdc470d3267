/**
 * SQL of changes, ordered by transaction number, then by `n`. A read stops below the oldest running transaction,
 * because changes can become visible later only above it. A range that was read never gets new changes. Concurrent
 * transactions may be in either order. A message shows its object's state at the read.
 */
import { type RawBuilder, sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Position } from "./position.ts"

/** A change without its object. */
export interface Change extends Position {
  merchantId: string
  kind: Row<"changes">["kind"]
  objectId: string
  at: Date
}

/** Some changes in order, and the database's state at the read. */
export interface Page {
  changes: Change[]
  /** All changes up to here were read. */
  end: Position
  /** Whether there may be more. */
  isFull: boolean
  now: Now
}

/** The state of the database's transactions. */
export interface Now {
  /** Changes after a restore or a failover, when transaction numbers may repeat. */
  epoch: string
  /** The oldest running transaction. */
  xmin: bigint
  /** The first transaction number that was not assigned. */
  xmax: bigint
  /** The first retained change, before which changes may be missing. Undefined without any. */
  first: Position | undefined
}

/**
 * SQL: names the transaction history. `pg_control_system` differs by Postgres installation. The WAL file's name starts
 * with the timeline, which each failover changes. A database restored next to another has another oid.
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

/** Reads some merchants' changes after a position, in order; without one, from now on. */
export const changesAfter = (
  ctx: TxContext,
  merchants: readonly string[],
  after: Position | undefined,
  limit: number,
) => read(ctx, sql`/* named: changes_after */`, sql`merchant_id = any(${sqlArray("text", merchants)})`, after, limit)

/** The same for one merchant by its own index, because the position may be a day old. */
export const changesOf = (ctx: TxContext, merchantId: string, after: Position | undefined, limit: number) =>
  read(ctx, sql`/* named: changes_of */`, sql`merchant_id = ${merchantId}`, after, limit)

/** After every change. */
const END: Position = { xid: 2n ** 64n - 1n, n: 0n }

async function read(
  { db }: TxContext,
  name: RawBuilder<unknown>,
  whose: RawBuilder<unknown>,
  { xid, n }: Position = END,
  limit: number,
): Promise<Page> {
  // One statement, so that the bound and the rows are from one snapshot.
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

/** How many changes one statement deletes. */
const BATCH = 5_000
const DAY_MS = 86_400_000

/**
 * Deletes changes older than 24 hours by the database's clock, except the newest of them, which shows whether a caller
 * missed any. First it deletes changes of a restored database whose transaction numbers are not assigned yet.
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
