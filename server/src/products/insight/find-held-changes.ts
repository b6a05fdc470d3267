/** Reports that changes arrive late because a transaction stays open. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"

/** A change that waits this long is late. The service's own transactions take seconds at most. */
const LATE_MS = 60_000

/**
 * How many milliseconds the oldest hidden change of any merchant has waited. Such a change is committed, but an
 * earlier transaction has not ended. Undefined if no change waits.
 */
async function changesHeldMs({ db }: TxContext): Promise<number | undefined> {
  const { rows } = await sql<{ ms: number | null }>`/* named: changes_held */
    select extract(epoch from clock_timestamp() - min(at))::float8 * 1000 as ms
    from (select at from changes where xid >= pg_snapshot_xmin(pg_current_snapshot()) order by xid, n limit 1000) held`.execute(
    db,
  )
  return rows[0]?.ms ?? undefined
}

/** How long changes have been waiting, in minutes; undefined if none has waited for a whole minute. */
async function minutesHeld(ctx: TxContext): Promise<number | undefined> {
  const ms = (await changesHeldMs(ctx)) ?? 0
  return ms >= LATE_MS ? Math.floor(ms / 60_000) : undefined
}

const inMinutes = (n: number): string => (n === 1 ? "1 minute" : `${n} minutes`)

/** What a merchant is told about late changes. */
export async function lateChanges(ctx: TxContext): Promise<string[]> {
  const minutes = await minutesHeld(ctx)
  if (minutes === undefined) return []
  return [
    `Live changes are ${inMinutes(minutes)} late, because work in the database has not ended. No change is lost, and reloaded lists are correct.`,
  ]
}

/** What an operator is told about late changes. */
export async function heldChanges(ctx: TxContext): Promise<string[]> {
  const minutes = await minutesHeld(ctx)
  if (minutes === undefined) return []
  return [
    `live changes: held up for ${inMinutes(minutes)} by a transaction that stays open. Find it: select pid, datname, state, query from pg_stat_activity where backend_xid is not null order by xact_start; or in pg_prepared_xacts.`,
  ]
}
