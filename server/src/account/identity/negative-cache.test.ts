import { expect, it } from "vitest"
import { negativeCache } from "./negative-cache.ts"

it("remembers what was missing for a second at most", () => {
  let now = 5
  const absent = negativeCache(() => now)
  expect(absent.has("a")).toBe(false)
  absent.add("a")
  expect([absent.has("a"), absent.has("b")]).toEqual([true, false])
  now += 600
  absent.add("b")
  now += 399
  expect([absent.has("a"), absent.has("b")]).toEqual([true, true])
  now += 1
  expect([absent.has("a"), absent.has("b")]).toEqual([false, false])
  absent.add("b")
  expect([absent.has("a"), absent.has("b")]).toEqual([false, true])
})

it("remembers ten thousand at most", () => {
  const absent = negativeCache(() => 0)
  const texts = Array.from({ length: 25_000 }, (_, i) => `${i}`)
  for (const text of texts) absent.add(text)
  expect(absent.has("24999")).toBe(true)
  expect(texts.filter(absent.has).length).toBeLessThanOrEqual(10_000)
})
