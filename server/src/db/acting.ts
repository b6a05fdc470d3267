/** Transactions that say in the database who acts; the triggers of the audit log read it. */
import { CompiledQuery, type Dialect } from "kysely"
import { actorStatement } from "../actor.ts"

/**
 * The same dialect, whose transactions begin with the statement of the actor where there is one. `begin` is the text that begins a
 * transaction: both are sent together, so that an actor costs no round trip. Without it, the statement follows by itself.
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
          // It may have begun; Kysely rolls back only what began without an error.
          await driver.rollbackTransaction(connection).catch(() => {})
          throw error
        }
      }
      return driver
    },
  }
}
