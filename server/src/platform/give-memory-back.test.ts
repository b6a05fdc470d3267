import { execFileSync } from "node:child_process"
import { expect, it } from "vitest"

/**
 * Run by a process of its own: what other tests have left running in this one may keep it from being idle. The objects outlive
 * young collections, so V8 has no need to look at them again. Says how much each burst gave back, in MB.
 */
const program = `
  import { getHeapStatistics } from "node:v8"
  import { constants, PerformanceObserver } from "node:perf_hooks"
  import { setTimeout } from "node:timers/promises"
  import { giveMemoryBack } from ${JSON.stringify(new URL("./give-memory-back.ts", import.meta.url).href)}
  const heap = () => getHeapStatistics().total_heap_size
  // V8 does not collect everything while there is memory.
  let full = 0
  new PerformanceObserver(list => {
    for (const { detail } of list.getEntries())
      if (detail.flags & constants.NODE_PERFORMANCE_GC_FLAGS_ALL_AVAILABLE_GARBAGE) full++
  }).observe({ entryTypes: ["gc"] })
  const gave = []
  for (let n = 0; n < 2; n++) {
    let kept = Array.from({ length: 1_500_000 }, (_, n) => ({ n }))
    if (kept.length !== 1_500_000) throw new Error("no burst")
    const most = heap()
    kept = undefined
    const before = full
    if (n === 0) giveMemoryBack(new AbortController().signal, 100)
    while (full === before) await setTimeout(50)
    gave.push((most - heap()) / 1024 / 1024)
  }
  console.log(JSON.stringify(gave))
  process.exit()
`

it("an idle process gives back what a burst took, after each burst", () => {
  const [first, second] = JSON.parse(
    execFileSync(process.execPath, ["--input-type=module", "-e", program], { encoding: "utf8", timeout: 120_000 }),
  )
  expect(first).toBeGreaterThan(30)
  expect(second).toBeGreaterThan(30)
})
