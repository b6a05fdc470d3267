/** Follows a list whose newest rows come first. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"

const PAUSE_MS = 2_000
/**
 * A row may be recorded after a newer one, because its transaction took longer. So the rows of the last period of this
 * length are read again each time.
 */
const OVERLAP_MS = 10_000

interface Followed<R> {
  /** Reads the rows from a time on, or all rows, oldest first. */
  read(from: string | undefined): Promise<R[]>
  newest(): Promise<R | undefined>
  keyOf(row: R): string
  timeOf(row: R): string
  /** Formats a row as a line. */
  lineOf(row: R): string
}

/**
 * Prints each row once, oldest first, until the command is stopped or `--count` is reached. The list is read every
 * two seconds.
 */
export async function tail<R extends object>({ options, out }: Input, list: Followed<R>): Promise<void> {
  const { since, count } = options as Record<string, string | undefined>
  const max = count === undefined ? Number.POSITIVE_INFINITY : Number(count)
  if (!(max > 0)) throw new Failure("--count must be above 0.", 2)
  /** The time from which rows must be read again, because they may have been recorded after this one. */
  const before = (row: R | undefined): string | undefined =>
    row && new Date(Date.parse(list.timeOf(row)) - OVERLAP_MS).toISOString()
  const newest = await list.newest()
  let from = since ?? before(newest)
  // Without `--since`, the next row is the first to be printed; existing rows count as printed.
  const known = since !== undefined || newest === undefined ? [] : await list.read(from)
  let printed = new Set(known.map(list.keyOf))
  for (let shown = 0; ; await sleep(PAUSE_MS)) {
    const rows = await list.read(from)
    for (const row of rows.filter(row => !printed.has(list.keyOf(row)))) {
      out.show(out.isJson ? row : list.lineOf(row))
      if (++shown >= max) return
    }
    printed = new Set(rows.map(list.keyOf))
    const next = before(rows.at(-1))
    // Never before the requested time.
    if (next !== undefined && (from === undefined || Date.parse(next) > Date.parse(from))) from = next
  }
}
