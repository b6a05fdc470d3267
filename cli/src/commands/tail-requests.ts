/** `sluice logs tail`: shows requests as they are answered. */
import type { Input } from "../command.ts"
import { connect } from "../profiles.ts"
import { tail } from "./tail.ts"

const PAGE = 100
/** The route that this command itself requests. */
const OWN = "/api/console/requests"

interface Row {
  at: string
  requestId: string
  method: string
  route: string
  status: number
  code: string | null
  durationMs: number
  refusal: string | null
}

/** Prints each request once, oldest first, except this command's own. A refusal is printed with its message. */
export async function run(input: Input): Promise<void> {
  const { status, key, route } = input.options as Record<string, string | undefined>
  const { requests } = connect(input.options)
  const filters = Object.fromEntries(Object.entries({ status, key, route }).filter(([, value]) => value !== undefined))
  await tail<Row>(input, {
    read: async from => {
      const rows: Row[] = []
      const query = { ...filters, ...(from === undefined ? {} : { from }), limit: PAGE }
      for await (const row of requests.list(query as never) as unknown as AsyncIterable<Row>) rows.push(row)
      return rows.filter(row => route !== undefined || row.route !== OWN).reverse()
    },
    newest: async () =>
      ((await requests.list(filters as never).page({ limit: 1 })) as unknown as { data: Row[] }).data[0],
    keyOf: row => `${row.at} ${row.requestId} ${row.route}`,
    timeOf: ({ at }) => at,
    lineOf: row =>
      `${row.at}  ${row.status}  ${row.method} ${row.route}  ${row.durationMs} ms  ${row.requestId}${row.code === null ? "" : `  ${row.code}: ${messageOf(row.refusal)}`}`,
  })
}

/** The message in a refusal, even if the refusal's text was cut. */
const messageOf = (refusal: string | null): string => /"message":"((?:[^"\\]|\\.)*)/.exec(refusal ?? "")?.[1] ?? ""
