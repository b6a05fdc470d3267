/** The time as the database has it, where this process's clock is wrong. */
import { sql } from "kysely"

/**
 * SQL: now, or the database's time if this process's clock is ahead of it. With its own time a new row would wait in the
 * other processes until their clocks reach it, and what others did lately would look old.
 *
 * @example run_at: dueNow(ctx.now())
 */
export const dueNow = (now: Date) => sql<Date>`least(${now}::timestamptz, clock_timestamp())`

/**
 * SQL: now, or the database's time if this process's clock is behind it. A wait that protects somebody begins with it.
 *
 * @example pending_at: sql<Date>`${laterNow(ctx.now())} + interval '24 hours'`
 */
export const laterNow = (now: Date) => sql<Date>`greatest(${now}::timestamptz, clock_timestamp())`
