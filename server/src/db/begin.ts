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

type Statement = Omit<pg.QueryConfig, "name"> & { name: string | undefined; query_timeout: number }

/**
 * The statements of one user of a connection. No statement of a transaction runs outside it, where it would be committed alone: not beside
 * the first one, not where that failed, and not after its end, when Kysely still sends what it has queued of one that failed. `end`: the
 * connection is another's from now on.
 */
export function transactional(client: pg.ClientBase, answerMs: number) {
  /** Of a transaction without a statement so far. */
  let opening: readonly string[] | undefined
  /** The first statement of a transaction, on its way. */
  let beginning: Promise<unknown> | undefined
  /** Why a transaction may not have begun. */
  let unbegun: unknown
  let isOver = false

  async function begin(first: readonly string[], statement: Statement) {
    try {
      // A text without values may be several statements, which can't be sent together with others.
      if (statement.values?.length) return await queryAfter(client, first, statement)
      await client.query({ text: first.join("; "), query_timeout: answerMs } as pg.QueryConfig)
    } catch (error) {
      unbegun = error
      throw error
    } finally {
      beginning = undefined
    }
    return await client.query(statement as pg.QueryConfig)
  }

  async function query(statement: Statement): Promise<{ command?: string; rows: unknown[] }> {
    const begins = openingOf(statement.text)
    if (begins) {
      opening = begins
      isOver = false
      return { rows: [] }
    }
    const first = opening
    opening = undefined
    const isEnd = statement.text === "commit" || statement.text === "rollback"
    // It has not begun.
    if (first && isEnd) return { command: statement.text.toUpperCase(), rows: [] }
    if (isOver && !isEnd) throw new Error("A statement was sent after the end of its transaction.")
    isOver ||= isEnd
    if (first) {
      beginning = begin(first, statement)
      return (await beginning) as pg.QueryResult
    }
    await beginning?.catch(() => {})
    if (unbegun === undefined) return await client.query(statement as pg.QueryConfig)
    if (!isEnd) throw unbegun
    unbegun = undefined
    return await client.query({ text: "rollback", query_timeout: answerMs } as pg.QueryConfig)
  }

  const end = () => {
    isOver = true
  }
  return { query, end }
}

/** The statements that a text begins a transaction with, which `acting` makes; undefined for any other text. */
function openingOf(text: string): readonly string[] | undefined {
  if (text === BEGIN) return [BEGIN]
  return text.startsWith(`${BEGIN}; `) ? [BEGIN, text.slice(BEGIN.length + 2)] : undefined
}
const BEGIN = "begin"

/**
 * Runs the statements of `opening`, and then this one, and answers what this one does; all in one message to the server, which skips
 * what follows an error. Resolves and rejects as `client.query` does.
 */
function queryAfter(client: pg.ClientBase, opening: readonly string[], config: Statement): Promise<pg.QueryResult> {
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
