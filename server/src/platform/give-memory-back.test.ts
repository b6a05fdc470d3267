import { constants, PerformanceObserver } from "node:perf_hooks"
import { getHeapStatistics } from "node:v8"
import { expect, it, onTestFinished } from "vitest"
import { until } from "../../test/e2e/program.ts"
import { giveMemoryBack } from "./give-memory-back.ts"

const MB = 1024 * 1024
const heap = () => getHeapStatistics().total_heap_size

/** Objects that outlive young collections, so that V8 has no need to look at them again. */
const burst = () => Array.from({ length: 1_500_000 }, (_, n) => ({ n }))

it("an idle process gives back what a burst took, after each burst", async () => {
  const stop = new AbortController()
  /** Collections of everything that is not needed. V8 does not do that while there is memory. */
  let full = 0
  const observer = new PerformanceObserver(list => {
    for (const entry of list.getEntries()) {
      const { flags = 0 } = (entry as PerformanceEntry & { detail: { flags?: number } }).detail
      if (flags & constants.NODE_PERFORMANCE_GC_FLAGS_ALL_AVAILABLE_GARBAGE) full++
    }
  })
  observer.observe({ entryTypes: ["gc"] })
  onTestFinished(() => {
    stop.abort()
    observer.disconnect()
  })
  for (let n = 0; n < 2; n++) {
    let kept: unknown[] | undefined = burst()
    expect(kept).toHaveLength(1_500_000)
    const most = heap()
    kept = undefined
    const before = full
    if (n === 0) giveMemoryBack(stop.signal, 100)
    await until("everything is collected", () => full > before)
    expect(heap()).toBeLessThan(most - 30 * MB)
  }
})
