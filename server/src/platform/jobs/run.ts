/** Loops: they repeat their work until they are stopped, sleep between rounds, and wake early when there is work. */
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises"
import type { Context } from "../context.ts"
import { loopDuration, loopRounds } from "../metrics.ts"
import type { WakeChannel } from "./wake-payload.ts"

export interface Loop<C extends Context = Context> {
  name: string
  /** Runs one round. Returns the longest wait until the next round, in milliseconds. */
  round: (ctx: C) => Promise<number>
  wokenBy: WakeChannel
  /**
   * The minimum time between the starts of two rounds, so that a flood of wake-ups causes only one; read after each
   * round.
   */
  gapMs: number | (() => number)
}

/** The pause after a failed round: short enough to recover soon, long enough not to fill the log. */
const AFTER_FAILURE_MS = 5_000
/** The pause before a process checks again whether its clock is right. */
const CLOCK_WRONG_MS = 1_000

/**
 * Runs a loop until `ctx.signal`. A round that throws is logged, counted and repeated. No round starts while this
 * machine's clock is wrong.
 */
export async function runLoop<C extends Context>(ctx: C, loop: Loop<C>): Promise<void> {
  const { signal } = ctx
  const wakes = ctx.wakes.subscribe(loop.wokenBy)
  while (!signal.aborted) {
    if (ctx.clock?.trouble() !== undefined) {
      await sleep(CLOCK_WRONG_MS, undefined, { signal }).catch(() => {})
      continue
    }
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
    const minMs = typeof loop.gapMs === "number" ? loop.gapMs : loop.gapMs()
    const gapMs = Math.max(0, minMs - tookMs)
    if (gapMs > 0) await sleep(gapMs, undefined, { signal }).catch(() => {})
    // A timer takes at least a millisecond.
    else await nextTurn()
    await wakes.next(Math.max(0, sleepMs - gapMs), signal)
  }
  wakes.close()
}
