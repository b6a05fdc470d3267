/** A transaction begins with its first statement: both are sent together, so that the beginning costs no round trip. */
// I/O: what it sends goes over the connection that it is given.
import pg from "pg"

/** What `pg` calls of a query and of a connection while it sends one; `pg-cursor` relies on the same. */
interface Wire {
  parse(statement: { text: string }): void
  bind(portal: object): void
  execute(portal: object): void
}
interface Wired {
  name: string | undefined
  requiresPreparation(): boolean
  prepare(wire: Wire): void
  handleDataRow(message: unknown): void
  handleCommandComplete(message: unknown, wire: Wire): void
}

/** The statements that a text begins a transaction with, which `acting` makes; undefined for any other text. */
export function openingOf(text: string): readonly string[] | undefined {
  if (text === BEGIN) return [BEGIN]
  return text.startsWith(`${BEGIN}; `) ? [BEGIN, text.slice(BEGIN.length + 2)] : undefined
}
const BEGIN = "begin"

/**
 * Runs the statements of `opening`, and then this one, and answers what this one does; all in one message to the server, which skips
 * what follows an error. Resolves and rejects as `client.query` does.
 */
export function queryAfter(
  client: pg.ClientBase,
  opening: readonly string[],
  config: pg.QueryConfig & { query_timeout: number },
): Promise<pg.QueryResult> {
  const query = Object.assign(new pg.Query(config), { query_timeout: config.query_timeout })
  const wired = query as unknown as Wired
  const { prepare, handleDataRow, handleCommandComplete } = wired
  const { name } = config
  let openings = 0
  // The first "parsed" that comes is the opening's, and `pg` would note it for this statement's name.
  Object.defineProperty(query, "name", { get: () => (openings > 0 ? undefined : name) })
  wired.requiresPreparation = () => true
  wired.prepare = wire => {
    for (const text of opening) {
      wire.parse({ text })
      wire.bind({})
      wire.execute({})
    }
    prepare.call(query, wire)
    openings = opening.length
  }
  wired.handleDataRow = message => {
    if (openings === 0) handleDataRow.call(query, message)
  }
  wired.handleCommandComplete = (message, wire) => {
    if (openings === 0) handleCommandComplete.call(query, message, wire)
    else openings--
  }
  return new Promise((resolve, reject) => {
    const answered = (error: Error | null, result: pg.QueryResult) => (error ? reject(error) : resolve(result))
    ;(client.query as unknown as (query: pg.Query, callback: typeof answered) => void)(query, answered)
  })
}
