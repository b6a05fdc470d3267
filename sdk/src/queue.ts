/** Spreads bursts: calls of one operation wait for each other, and for the rate limit that refused one of them. */
import { pause } from "./pause.ts"

/** Options of a queue. */
export interface QueueOptions {
  /** The most concurrent calls of one operation; 8 by default. */
  atOnce?: number
  /** Milliseconds that a call may wait for rate limits; 600,000 by default. */
  maxWaitMs?: number
}

/** The calls of one operation. */
export interface Lane {
  maxWaitMs: number
  /** Runs a call when it is its turn. */
  run<T>(signal: AbortSignal | undefined, work: () => Promise<T>): Promise<T>
  /** Resolves when no rate limit is known to refuse the operation. */
  opened(signal: AbortSignal | undefined): Promise<void>
  /** Holds all calls back for this many milliseconds. */
  close(ms: number): void
}

export interface Queue {
  laneOf(operation: string): Lane
}

/** Creates a queue. Calls that can't be repeated safely do not wait in it. */
export function openQueue({ atOnce = 8, maxWaitMs = 600_000 }: QueueOptions): Queue {
  const lanes = new Map<string, Lane>()
  return {
    laneOf: operation => {
      const lane = lanes.get(operation) ?? openLane(atOnce, maxWaitMs)
      lanes.set(operation, lane)
      return lane
    },
  }
}

function openLane(atOnce: number, maxWaitMs: number): Lane {
  const waiting: (() => void)[] = []
  let running = 0
  let opensAt = 0
  const next = () => {
    if (running >= atOnce) return
    const first = waiting.shift()
    if (!first) return
    running++
    first()
  }
  return {
    maxWaitMs,
    run: async (signal, work) => {
      await new Promise<void>(resolve => {
        waiting.push(resolve)
        next()
      })
      try {
        signal?.throwIfAborted()
        return await work()
      } finally {
        running--
        next()
      }
    },
    opened: async signal => {
      for (let leftMs = opensAt - Date.now(); leftMs > 0; leftMs = opensAt - Date.now()) await pause(leftMs, signal)
    },
    close: ms => {
      opensAt = Math.max(opensAt, Date.now() + ms)
    },
  }
}
