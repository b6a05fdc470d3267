/** Transactions that tell the database who acts, which the triggers of the audit log read. */
import { CompiledQuery, type Dialect } from "kysely"
import { actorStatement } from "../actor.ts"

/**
 * Returns the same dialect, but its transactions start with the actor's statement if there is an actor. `begin` is the
 * text that begins a transaction: both are sent together, so an actor costs no round trip. Without `begin`, the actor's
 * statement is sent after the begin.
 */
export function acting(dialect: Dialect, begin?: string): Dialect {
  return {
    createAdapter: () => dialect.createAdapter(),
    createQueryCompiler: () => dialect.createQueryCompiler(),
    createIntrospector: db => dialect.createIntrospector(db),
    createDriver: () => {
      const driver = dialect.createDriver()
      const beginUsually = driver.beginTransaction.bind(driver)
      driver.beginTransaction = async (connection, settings) => {
        const statement = actorStatement()
        const isPlain = settings.isolationLevel === undefined && settings.accessMode === undefined
        const together = begin !== undefined && isPlain && statement !== undefined
        if (!together) await beginUsually(connection, settings)
        const text = together ? `${begin}; ${statement}` : statement
        if (text === undefined) return
        try {
          await connection.executeQuery(CompiledQuery.raw(text))
        } catch (error) {
          // The transaction may have started; Kysely rolls back only one whose begin succeeded.
          await driver.rollbackTransaction(connection).catch(() => {})
          throw error
        }
      }
      return driver
    },
  }
}
