/**
 * SQL for changes, ordered by transaction number, then by `n`. A read stops below the oldest running transaction,
 * because only changes above it can still become visible. So a range that was read never gets new changes. Concurrent
 * transactions may come in either order. A message shows its object's state at the time of the read.
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

/** A page of changes in order, and the database's state at the time of the read. */
export interface Page {
  changes: Change[]
  /** All changes up to this position were read. */
  end: Position
  /** Whether the page is full, so that more changes may follow. */
  isFull: boolean
  now: Now
}

/** The state of the database's transactions. */
export interface Now {
  /** Names the transaction history. It changes after a restore or a failover, when transaction numbers may repeat. */
  epoch: string
  /** The oldest running transaction. */
  xmin: bigint
  /** The first transaction number that was not assigned. */
  xmax: bigint
  /** The oldest retained change, before which changes may be missing. Undefined if none is retained. */
  first: Position | undefined
}

/**
 * SQL: names the transaction history. `pg_control_system` differs between Postgres installations. The WAL file's name
 * starts with the timeline, which changes at each failover. A database restored next to another one has a different
 * oid.
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

/** Reads the changes of these merchants after a position, in order. Without a position, reads from now on. */
export const changesAfter = (
  ctx: TxContext,
  merchants: readonly string[],
  after: Position | undefined,
  limit: number,
) => read(ctx, sql`/* named: changes_after */`, sql`merchant_id = any(${sqlArray("text", merchants)})`, after, limit)

/** Reads one merchant's changes through the index by merchant, because the position may be a day old. */
export const changesOf = (ctx: TxContext, merchantId: string, after: Position | undefined, limit: number) =>
  read(ctx, sql`/* named: changes_of */`, sql`merchant_id = ${merchantId}`, after, limit)

/** The position after every change. */
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

/** How many changes one statement deletes at most. */
const BATCH = 5_000
const DAY_MS = 86_400_000

/**
 * Deletes changes older than 24 hours by the database's clock. The newest of them stays, because it shows whether a
 * caller missed any change. Changes of a restored database whose transaction numbers are not assigned yet are deleted
 * first.
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
