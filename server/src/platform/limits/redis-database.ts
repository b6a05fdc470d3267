/** Checks that Redis has the database that `REDIS_URL` names. Otherwise a connection silently uses database 0. */
import type { Redis } from "ioredis"
import { parseRedisAddress } from "./redis-address.ts"
import type { RedisClient } from "./shared-log.ts"

/** What is wrong with the database in `REDIS_URL`, and the operator's next step: two parts of a sentence. */
export interface DatabaseFault {
  message: string
  todo: string
}

/**
 * Returns why Redis refuses the database of `url`; undefined if Redis accepts it. `redis` is an open connection to that
 * address. Rejects if Redis does not answer.
 */
export async function databaseFault(redis: RedisClient, url: string): Promise<DatabaseFault | undefined> {
  const { database } = parseRedisAddress(url)
  if (database === 0) return undefined
  try {
    // An address that names a database is never that of a cluster.
    await (redis as Redis).select(database)
  } catch (error) {
    const { message } = error as Error
    // Other errors are temporary: a server that is still loading its data refuses every command.
    if (!/^(ERR|NOPERM) /.test(message)) throw error
    const todo = message.startsWith("NOPERM")
      ? "allow its user +select, or name no database for database 0"
      : "name a database that Redis has, or leave it out for database 0"
    return { message: `REDIS_URL names database ${database}, and Redis refuses it (${message})`, todo }
  }
}
