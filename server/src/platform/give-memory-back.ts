/**
 * Returns the memory of a burst to the machine. V8 collects garbage only when it needs room. A process that had served
 * a burst held 100 MB of garbage and free memory for as long as nothing happened (measured, even a minute later).
 */
// I/O: changes a flag of V8, and collects garbage in this process.
import { performance } from "node:perf_hooks"
import { getHeapStatistics, setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"

const LOOK_MS = 10_000
/** A collection blocks everything for about 50 ms, so the process must be busy for less than this share of the time. */
const IDLE = 0.1
/** In bytes. A heap that has grown by less is left alone. */
const WORTH_BYTES = 16 * 1024 * 1024

/** Collects everything, including memory that V8 keeps for later, and returns free pages. */
type Collect = (options: { type: "major"; execution: "sync"; flavor: "last-resort" }) => void

/**
 * Checks every ten seconds, until the signal. The check collects if the process was idle since the last check and the
 * heap holds 16 MB more than after the last collection. The first collection comes after the start.
 */
export function giveMemoryBack(signal: AbortSignal, everyMs = LOOK_MS): void {
  setFlagsFromString("--expose-gc")
  const collect = runInNewContext("gc") as Collect
  let heldBytes = 0
  let last = performance.eventLoopUtilization()
  const timer = setInterval(() => {
    const now = performance.eventLoopUtilization()
    const { utilization } = performance.eventLoopUtilization(now, last)
    last = now
    if (utilization > IDLE || getHeapStatistics().total_heap_size < heldBytes + WORTH_BYTES) return
    collect({ type: "major", execution: "sync", flavor: "last-resort" })
    heldBytes = getHeapStatistics().total_heap_size
  }, everyMs)
  timer.unref()
  signal.addEventListener("abort", () => clearInterval(timer), { once: true })
}
