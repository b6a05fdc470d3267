/** `sluice events tail`: shows events as they happen. */
import type { Input } from "../command.ts"
import { connect } from "../profiles.ts"
import { tail } from "./tail.ts"

const PAGE = 100

interface Row {
  id: string
  event: string
  createdAt: string
}

/** Prints each event once, oldest first. */
export async function run(input: Input): Promise<void> {
  const { type } = input.options as Record<string, string | undefined>
  const { events } = connect(input.options)
  const ofType = type === undefined ? {} : { type }
  await tail<Row>(input, {
    read: async from => {
      const rows: Row[] = []
      const query = { ...ofType, ...(from === undefined ? {} : { since: from }), limit: PAGE }
      for await (const row of events.list(query as never) as unknown as AsyncIterable<Row>) rows.push(row)
      return rows.reverse()
    },
    newest: async () => ((await events.list(ofType as never).page({ limit: 1 })) as unknown as { data: Row[] }).data[0],
    keyOf: ({ id }) => id,
    timeOf: ({ createdAt }) => createdAt,
    lineOf: ({ id, event, createdAt }) => `${createdAt}  ${id}  ${event}`,
  })
}
