/** Records one process's results in batches. Results that arrive during a write form the next batch. */
import type { Context } from "../../platform/context.ts"
import { type Result, recordAttempts } from "./record-attempts.ts"

const WRITE_AGAIN_MS = 1_000
const WRITE_TRIES = 20

export interface Recorder {
  /** Adds a result. Returns the recording work, unless it is already in progress. */
  add(result: Result): Promise<void> | undefined
}

/** Opens a recorder that retries each batch for 20 seconds, or until `cut`. `recorded` gets each batch's results. */
export function openRecorder(
  ctx: Context,
  cut: AbortSignal | undefined,
  recorded: (results: readonly Result[]) => void,
): Recorder {
  const results: Result[] = []
  let writing = false

  async function writeAll(): Promise<void> {
    writing = true
    while (results.length > 0) await writeBatch()
    writing = false
  }

  async function writeBatch(): Promise<void> {
    // Results of the same event-loop turn join this batch.
    await new Promise(resolve => setImmediate(resolve))
    const batch = results.splice(0)
    try {
      await persistently(batch)
    } catch (error) {
      // The leases of these deliveries expire, and the deliveries are then retried.
      ctx.log.error({ err: error, deliveries: batch.length }, "attempts could not be recorded")
    } finally {
      recorded(batch)
    }
  }

  async function persistently(batch: readonly Result[]): Promise<void> {
    for (let n = 1; ; n++)
      try {
        await recordAttempts(ctx, batch)
        return
      } catch (error) {
        if (n === WRITE_TRIES || cut?.aborted) throw error
        ctx.log.warn({ err: error }, "attempts could not be recorded yet")
        await new Promise(resolve => setTimeout(resolve, WRITE_AGAIN_MS))
      }
  }

  return {
    add: result => {
      results.push(result)
      return writing ? undefined : writeAll()
    },
  }
}
