/** The statements that this process sends to Postgres, for programs that end themselves at a given one. */
import pg from "pg"

interface Sent {
  text: string
  values: readonly unknown[]
  /** Whether it begins a transaction: it is `begin`, or is sent together with one. */
  begins: boolean
  /** Whether it commits one: it is `commit`, or is sent together with one. */
  commits: boolean
}
interface Result {
  rows?: unknown
}
type Callback = (error: Error | null, result?: Result) => void

/** Calls `watch` in place of sending each statement; it calls `send`, or does not. */
export function watchQueries(watch: (client: pg.Client, sent: Sent, send: () => Promise<Result>) => Promise<Result>) {
  const query = pg.Client.prototype.query as (...args: unknown[]) => unknown
  pg.Client.prototype.query = function watchedQuery(this: pg.Client, ...args: unknown[]): unknown {
    // The pool gives a deadline with each statement, and so an object in place of text and values.
    const [first, second] = args
    const given = typeof first === "string" ? { text: first, values: second } : (first as pg.QueryConfig)
    const values = Array.isArray(given.values) ? given.values : []
    const text = String(given.text)
    // What is sent together with others is a query of its own kind (`db/begin.ts`). It calls back, as for a pool's own statements.
    const isQuery = first instanceof pg.Query
    const { before = [], after = [] } = given as { before?: string[]; after?: string[] }
    const begins = before.length > 0 || /^(begin|start transaction)/.test(text)
    const sent = { text, values, begins, commits: after.length > 0 || text === "commit" }
    const callback = args.at(-1)
    if (typeof callback !== "function") return watch(this, sent, () => query.apply(this, args) as Promise<Result>)
    const send = () => {
      const { promise, resolve, reject } = Promise.withResolvers<Result>()
      const answered: Callback = (error, result = {}) => (error ? reject(error) : resolve(result))
      query.apply(this, [...args.slice(0, -1), answered])
      return promise
    }
    watch(this, sent, send).then(
      result => callback(null, result),
      error => callback(error),
    )
    return isQuery ? first : undefined
  } as typeof pg.Client.prototype.query
}
