/**
 * Sends a transaction's begin together with its first statement. Sends its commit together with its last statement if
 * nobody reads that statement's result. So neither the begin nor the commit costs a round trip.
 */
// I/O: sends over the given connection.
import pg from "pg"

/**
 * The methods that `pg` calls on a query and a connection while it sends a query; `pg-cursor` relies on the same
 * methods.
 */
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
  handleError(error: Error, connection: { submittedNamedStatements: Record<string, string> }): void
}

type Statement = Omit<pg.QueryConfig, "name"> & {
  name: string | undefined
  query_timeout: number
  /**
   * Whether nobody reads the statement's result. In a transaction, such a statement waits for the next one, or is sent
   * with the commit if that comes next.
   */
  isDeferred: boolean
}

/**
 * Runs the statements of one user of a connection. A statement of a transaction must never run outside it, where it
 * would be committed alone. So no statement runs in parallel with the first one, or after the first one failed. No
 * statement runs after the transaction's end either, when Kysely still sends what it had queued. `end`: the connection
 * now belongs to another user.
 */
export function transactional(client: pg.ClientBase, answerMs: number) {
  const transaction = openTransaction(client, answerMs)
  let phase: "none" | "within" | "over" = "none"
  /** Sent before the next statement, or with the commit. */
  let deferred: Statement | undefined

  async function query(statement: Statement): Promise<Answer> {
    const begins = openingOf(statement.text)
    if (begins) {
      transaction.open(begins)
      phase = "within"
      return { rows: [] }
    }
    const isEnd = isEndOf(statement)
    const refuseLate = () => {
      if (phase === "over" && !isEnd) throw new Error("A statement was sent after the end of its transaction.")
    }
    refuseLate()
    const waiting = statement.text === ROLLBACK || transaction.hasFailed() ? undefined : deferred
    deferred = undefined
    if (isEnd) phase = "over"
    if (waiting && statement.text === COMMIT) return await transaction.commitWith(waiting)
    if (waiting) {
      await transaction.run(waiting)
      // The transaction may have ended meanwhile.
      refuseLate()
    }
    if (!statement.isDeferred || phase !== "within" || transaction.hasFailed()) return await transaction.run(statement)
    deferred = statement
    return { rows: [] }
  }

  const end = () => {
    phase = "over"
  }
  return { query, end }
}

/** Sends a transaction's begin with its first statement, and its commit with its last. */
function openTransaction(client: pg.ClientBase, answerMs: number) {
  /** The begin of a transaction that has no statement yet. */
  let opening: readonly string[] | undefined
  /** The first statement of a transaction, in flight. */
  let beginning: Promise<unknown> | undefined
  /** Why a transaction may not have started. */
  let unbegun: unknown

  async function begin(first: readonly string[], statement: Statement) {
    try {
      // A text without values may contain several statements, which can't be sent together with others.
      if (statement.values?.length) return await queryBetween(client, first, statement, [])
      await answerTo(client, { text: first.join("; "), query_timeout: answerMs })
    } catch (error) {
      unbegun = error
      throw error
    } finally {
      beginning = undefined
    }
    return await answerTo(client, statement)
  }

  async function run(statement: Statement): Promise<Answer> {
    const first = opening
    opening = undefined
    // The transaction has not started.
    if (first && isEndOf(statement)) return { command: statement.text.toUpperCase(), rows: [] }
    if (first) {
      beginning = begin(first, statement)
      return (await beginning) as Answer
    }
    await beginning?.catch(() => {})
    if (unbegun === undefined) return await answerTo(client, statement)
    if (!isEndOf(statement)) throw unbegun
    unbegun = undefined
    return await answerTo(client, { text: ROLLBACK, query_timeout: answerMs })
  }

  async function commitWith(last: Statement): Promise<Answer> {
    await beginning?.catch(() => {})
    if (unbegun !== undefined) throw unbegun
    const first = opening
    opening = undefined
    // A single statement needs no transaction around it, because it is a transaction itself.
    if (first?.length === 1) await answerTo(client, last)
    else await queryBetween(client, first ?? [], last, [COMMIT])
    return { command: "COMMIT", rows: [] }
  }

  const open = (first: readonly string[]) => {
    opening = first
  }
  return { open, run, commitWith, hasFailed: () => unbegun !== undefined }
}

const isEndOf = ({ text }: Statement): boolean => text === COMMIT || text === ROLLBACK

interface Answer {
  command?: string
  rowCount?: number | null
  rows: unknown[]
}

/** Returns the statements of a text that begins a transaction, as `acting` writes it; undefined for any other text. */
function openingOf(text: string): readonly string[] | undefined {
  if (text === BEGIN) return [BEGIN]
  return text.startsWith(`${BEGIN}; `) ? [BEGIN, text.slice(BEGIN.length + 2)] : undefined
}
const BEGIN = "begin"
const COMMIT = "commit"
const ROLLBACK = "rollback"

/**
 * Runs the statements of `before`, this one, and those of `after`, and returns this one's result. All statements go in
 * one message to the server, which skips the rest after an error. Resolves and rejects as `client.query` does.
 */
function queryBetween(
  client: pg.ClientBase,
  before: readonly string[],
  config: Statement,
  after: readonly string[],
): Promise<Answer> {
  const query = Object.assign(new pg.Query(config), { query_timeout: config.query_timeout, before, after })
  const wired = query as unknown as Wired
  const { prepare, handleDataRow, handleCommandComplete, handleError } = wired
  const { name } = config
  /** How many statements of `before` are still incomplete. */
  let openings = 0
  let isComplete = false
  const send = (wire: Wire, text: string) => {
    wire.parse({ text })
    wire.bind({})
    wire.execute({})
  }
  // The first "parsed" message is for the opening, and `pg` would record it for this statement's name.
  Object.defineProperty(query, "name", { get: () => (openings > 0 ? undefined : name) })
  wired.requiresPreparation = () => true
  wired.prepare = wire => {
    for (const text of before) send(wire, text)
    const execute = (portal: object) => {
      wire.execute(portal)
      // Sent only now: if a value can't be sent, this is not reached, and nothing may follow.
      for (const text of after) send(wire, text)
    }
    prepare.call(query, Object.create(wire, { execute: { value: execute } }))
    openings = before.length
  }
  wired.handleDataRow = message => {
    if (openings === 0) handleDataRow.call(query, message)
  }
  wired.handleCommandComplete = (message, wire) => {
    if (openings > 0) openings--
    else if (!isComplete) {
      isComplete = true
      handleCommandComplete.call(query, message, wire)
    }
  }
  wired.handleError = (error, connection) => {
    // After a failed opening, `pg` would assume that the name is prepared.
    if (openings > 0 && name !== undefined) delete connection.submittedNamedStatements[name]
    openings = 0
    handleError.call(query, error, connection)
  }
  return answerTo(client, query)
}

/**
 * Returns the answer to one statement. A finished query of `pg` still refers to its callback and result, and V8 frees
 * finished queries only in a full collection (measured). Files of a million rows took 90 MB more and twice the CPU. So
 * the callback and the result drop their references once the answer has arrived.
 */
async function answerTo(client: pg.ClientBase, query: object): Promise<Answer> {
  try {
    return await new Promise((resolve, reject) => {
      let promise: { resolve: typeof resolve; reject: typeof reject } | undefined = { resolve, reject }
      const answered = (error: Error | null, result: pg.QueryResult) => {
        const { resolve, reject } = promise ?? {}
        promise = undefined
        if (error) return reject?.(error)
        resolve?.({ command: result.command, rowCount: result.rowCount, rows: result.rows })
        result.rows = []
      }
      ;(client.query as unknown as (query: object, callback: typeof answered) => void).call(client, query, answered)
    })
  } catch (error) {
    // The error's own stack starts at the socket that received it.
    Error.captureStackTrace(error as Error)
    throw error
  }
}
