/** The database's time, for use if this process's clock is wrong. */
import { sql } from "kysely"

/**
 * SQL: now, or the database's time if this process's clock is ahead of it. With the process's own time, a new row would
 * wait until other processes' clocks reach that time, and their recent rows would look old.
 *
 * @example run_at: dueNow(ctx.now())
 */
export const dueNow = (now: Date) => sql<Date>`least(${now}::timestamptz, clock_timestamp())`

/**
 * SQL: now, or the database's time if this process's clock is behind it. For the start of a wait that protects someone.
 *
 * @example pending_at: sql<Date>`${laterNow(ctx.now())} + interval '24 hours'`
 */
export const laterNow = (now: Date) => sql<Date>`greatest(${now}::timestamptz, clock_timestamp())`
