/** Reports receivers' answers to the service in batches, until the service has accepted each. */
import { setTimeout as sleep } from "node:timers/promises"
import { SluiceError } from "../../../sdk/src/errors.ts"
import type { Result } from "./forward.ts"

const BATCH = 100
const PAUSE_MS = 1_000

export interface Reporter {
  add(result: Result): void
  /**
   * Resolves when the service has accepted or refused every result. After `ms`, results that can't be reported are
   * dropped.
   */
  settle(ms: number): Promise<void>
}

/**
 * Opens a reporter. A result that the service finally refuses is dropped; the service provides that delivery again
 * when its lease ends.
 */
export function openReporter(
  send: (results: Result[]) => Promise<unknown>,
  refused: (error: SluiceError) => void,
): Reporter {
  const waiting: Result[] = []
  let running: Promise<void> | undefined
  let endsAt = Number.POSITIVE_INFINITY
  const run = async () => {
    while (waiting.length > 0) {
      const batch = waiting.slice(0, BATCH)
      try {
        await send(batch)
      } catch (error) {
        if (!(error instanceof SluiceError)) throw error
        if (error.retryable && Date.now() < endsAt) {
          await sleep(error.retryAfter === undefined ? PAUSE_MS : error.retryAfter * 1_000)
          continue
        }
        refused(error)
      }
      waiting.splice(0, batch.length)
    }
    running = undefined
  }
  return {
    add: result => {
      waiting.push(result)
      running ??= run()
    },
    settle: async ms => {
      endsAt = Date.now() + ms
      await running
    },
  }
}
