/** Loops: work again and again until they are stopped, asleep between rounds, awake early when something waits. */
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises"
import type { Context } from "../context.ts"
import { loopDuration, loopRounds } from "../metrics.ts"
import type { WakeChannel } from "./wake.ts"

export interface Loop {
  name: string
  /** Does one round and says how many milliseconds the next may wait at most. */
  round: (ctx: Context) => Promise<number>
  wokenBy: WakeChannel
  /** The least time between the starts of two rounds, so that a flood of wake-ups is one round; asked after each round. */
  gapMs: number | (() => number)
}

/** After a failed round: soon enough to recover by itself, late enough not to fill the log. */
const AFTER_FAILURE_MS = 5_000

/** Runs a loop until `ctx.signal`; a round that throws is logged and counted, and tried again. */
export async function runLoop(ctx: Context, loop: Loop): Promise<void> {
  const { signal } = ctx
  const wakes = ctx.wakes.subscribe(loop.wokenBy)
  while (!signal.aborted) {
    const startedAt = performance.now()
    let sleepMs = AFTER_FAILURE_MS
    let result = "failed"
    try {
      sleepMs = await loop.round(ctx)
      result = "done"
    } catch (error) {
      if (signal.aborted) break
      ctx.log.error({ err: error, loop: loop.name }, "a round failed and will be tried again")
    }
    const tookMs = performance.now() - startedAt
    loopDuration.observe({ loop: loop.name }, tookMs / 1_000)
    loopRounds.inc({ loop: loop.name, result })
    const leastMs = typeof loop.gapMs === "number" ? loop.gapMs : loop.gapMs()
    const gapMs = Math.max(0, leastMs - tookMs)
    if (gapMs > 0) await sleep(gapMs, undefined, { signal }).catch(() => {})
    // A timer takes a millisecond at least.
    else await nextTurn()
    await wakes.next(Math.max(0, sleepMs - gapMs), signal)
  }
  wakes.close()
}
