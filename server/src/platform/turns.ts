/** Work over many values that gives other work of the process a turn: requests, timers, leases. */
import { setImmediate as nextTurn } from "node:timers/promises"

/** The longest stretch of work, in milliseconds, not counting a single call of `use`. */
const TURN_MS = 8
/** How many values are processed between two readings of the clock. */
const VALUES_PER_LOOK = 32

/** Calls `use` for each value in order, and gives other work a turn every few milliseconds. */
export async function inTurns<T>(values: Iterable<T>, use: (value: T) => void): Promise<void> {
  let since = performance.now()
  let count = 0
  for (const value of values) {
    use(value)
    if (++count % VALUES_PER_LOOK > 0 || performance.now() - since < TURN_MS) continue
    await nextTurn()
    since = performance.now()
  }
}
