import { expect, it } from "vitest"
import { recentMisses } from "./negative-cache.ts"

it("remembers what was missing for a second at most", () => {
  let now = 5
  const misses = recentMisses(() => now)
  expect(misses.has("a")).toBe(false)
  misses.add("a")
  expect([misses.has("a"), misses.has("b")]).toEqual([true, false])
  now += 600
  misses.add("b")
  now += 399
  expect([misses.has("a"), misses.has("b")]).toEqual([true, true])
  now += 1
  expect([misses.has("a"), misses.has("b")]).toEqual([false, false])
  misses.add("b")
  expect([misses.has("a"), misses.has("b")]).toEqual([false, true])
})

it("remembers ten thousand at most", () => {
  const misses = recentMisses(() => 0)
  const texts = Array.from({ length: 25_000 }, (_, i) => `${i}`)
  for (const text of texts) misses.add(text)
  expect(misses.has("24999")).toBe(true)
  expect(texts.filter(misses.has).length).toBeLessThanOrEqual(10_000)
})
