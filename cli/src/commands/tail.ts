/** Follows a list whose newest rows come first. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"

const PAUSE_MS = 2_000
/** A row may be recorded after a newer one, because its transaction took longer. So this much is read once more each time. */
const OVERLAP_MS = 10_000

interface Followed<R> {
  /** Rows from a time on, or all, oldest first. */
  read(from: string | undefined): Promise<R[]>
  newest(): Promise<R | undefined>
  keyOf(row: R): string
  timeOf(row: R): string
  /** The line of a row. */
  lineOf(row: R): string
}

/** Prints each row once, oldest first, until it is stopped or `--count` is reached. It asks every two seconds. */
export async function tail<R extends object>({ options, out }: Input, list: Followed<R>): Promise<void> {
  const { since, count } = options as Record<string, string | undefined>
  const max = count === undefined ? Number.POSITIVE_INFINITY : Number(count)
  if (!(max > 0)) throw new Failure("--count must be above 0.", 2)
  /** From when on rows are read that may have been recorded after this one. */
  const before = (row: R | undefined): string | undefined =>
    row && new Date(Date.parse(list.timeOf(row)) - OVERLAP_MS).toISOString()
  const newest = await list.newest()
  let from = since ?? before(newest)
  // Without a time it begins with the next row; what is there already counts as printed.
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
    // Never before the time that was asked for.
    if (next !== undefined && (from === undefined || Date.parse(next) > Date.parse(from))) from = next
  }
}
