/** `sluice events tail`: events as they happen. */
import { setTimeout as sleep } from "node:timers/promises"
import type { Input } from "../command.ts"
import { Failure } from "../failure.ts"
import { connect } from "../profiles.ts"

const PAUSE_MS = 2_000
const PAGE = 100

interface Row {
  id: string
  createdAt: string
}

/** Prints each event once, oldest first, until it is stopped or `--count` is reached. It asks every two seconds. */
export async function run({ options, out }: Input): Promise<void> {
  const { type, since, count } = options as Record<string, string | undefined>
  const max = count === undefined ? Number.POSITIVE_INFINITY : Number(count)
  if (!(max > 0)) throw new Failure("--count must be above 0.", 2)
  const { events } = connect(options)
  const query = { ...(type ? { type } : {}) }
  const seen = new Set<string>()
  let from = since
  if (from === undefined) {
    const [newest] = ((await events.list(query as never).page({ limit: 1 })) as unknown as { data: Row[] }).data
    if (newest) seen.add(newest.id)
    from = newest?.createdAt
  }
  for (let printed = 0; ; await sleep(PAUSE_MS)) {
    const rows: Row[] = []
    const list = events.list({ ...query, ...(from === undefined ? {} : { since: from }), limit: PAGE } as never)
    for await (const row of list as unknown as AsyncIterable<Row>) if (!seen.has(row.id)) rows.push(row)
    for (const row of rows.reverse()) {
      seen.add(row.id)
      from = row.createdAt
      out.show(out.isJson ? row : `${row.createdAt}  ${row.id}  ${(row as unknown as { event: string }).event}`)
      if (++printed >= max) return
    }
  }
}
