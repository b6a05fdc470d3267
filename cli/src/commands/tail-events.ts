/** `sluice events tail`: events as they happen. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { connect } from "../profiles.ts"

const PAUSE_MS = 2_000
const PAGE = 100
/** An event may be recorded after a newer one, because its transaction took longer. So this much is read once more each time. */
const OVERLAP_MS = 10_000

interface Row {
  id: string
  event: string
  createdAt: string
}

/** Prints each event once, oldest first, until it is stopped or `--count` is reached. It asks every two seconds. */
export async function run({ options, out }: Input): Promise<void> {
  const { type, since, count } = options as Record<string, string | undefined>
  const max = count === undefined ? Number.POSITIVE_INFINITY : Number(count)
  if (!(max > 0)) throw new Failure("--count must be above 0.", 2)
  const { events } = connect(options)
  const ofType = type === undefined ? {} : { type }
  const read = async (from: string | undefined): Promise<Row[]> => {
    const rows: Row[] = []
    const query = { ...ofType, ...(from === undefined ? {} : { since: from }), limit: PAGE }
    for await (const row of events.list(query as never) as unknown as AsyncIterable<Row>) rows.push(row)
    return rows.reverse()
  }
  const newest = ((await events.list(ofType as never).page({ limit: 1 })) as unknown as { data: Row[] }).data[0]
  let from = since ?? before(newest)
  // Without a time it begins with the next event; what is there already counts as printed.
  let printed = since !== undefined || newest === undefined ? new Set<string>() : idsOf(await read(from))
  for (let shown = 0; ; await sleep(PAUSE_MS)) {
    const rows = await read(from)
    for (const row of rows.filter(({ id }) => !printed.has(id))) {
      out.show(out.isJson ? row : `${row.createdAt}  ${row.id}  ${row.event}`)
      if (++shown >= max) return
    }
    printed = idsOf(rows)
    const next = before(rows.at(-1))
    // Never before the time that was asked for.
    if (next !== undefined && (from === undefined || Date.parse(next) > Date.parse(from))) from = next
  }
}

const idsOf = (rows: readonly Row[]): Set<string> => new Set(rows.map(({ id }) => id))

/** From when on events are read that may have been recorded after this one. */
const before = (row: Row | undefined): string | undefined =>
  row && new Date(Date.parse(row.createdAt) - OVERLAP_MS).toISOString()
