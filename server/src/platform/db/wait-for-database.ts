/**
 * A start waits for Postgres, however long it takes. After a power cut the machines start in any order, and a process
 * that ends answers no probe. Problems that waiting can't fix, such as a wrong password, end the start.
 */
// I/O: queries the database before there is a context.
import { setTimeout as sleep } from "node:timers/promises"
import type { Logger } from "pino"
import { connectClient, NotPrimary } from "./hosts.ts"
import { isUnavailable, wordsOf } from "./pool.ts"

const CONNECT_MS = 5_000
const RETRY_MS = 1_000
/** After the first log line, the process logs this often that it still waits. */
const LOGGED_MS = 600_000

/** Resolves when the database at `url` answers. Rejects at the signal, and with any error that is not an outage. */
export async function waitForDatabase(url: string, log: Logger, signal: AbortSignal): Promise<void> {
  let loggedAt = Number.NEGATIVE_INFINITY
  for (;;)
    try {
      const client = await connectClient(url, { application_name: "sluice", connectionTimeoutMillis: CONNECT_MS })
      await client.end().catch(() => {})
      if (loggedAt > Number.NEGATIVE_INFINITY) log.info("the database can be reached")
      return
    } catch (error) {
      signal.throwIfAborted()
      if (!(isUnavailable(error) || error instanceof NotPrimary)) throw error
      if (performance.now() - loggedAt >= LOGGED_MS) {
        loggedAt = performance.now()
        log.error({ reason: wordsOf(error) }, "the database can't be reached: the start waits for it")
      }
      await sleep(RETRY_MS, undefined, { signal })
    }
}
