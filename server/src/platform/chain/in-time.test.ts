import { expect, it } from "vitest"
import { newEndpoint } from "./endpoints.ts"
import { askInTime } from "./in-time.ts"
import { openSlowEndpoints } from "./slow-endpoints.ts"

/** Three endpoints whose answers a test lets go, by their place. */
function three() {
  const endpoints = [1, 2, 3].map(place => newEndpoint("base", `http://127.0.0.1:${place}`, place))
  const [a, b, c] = endpoints.map(() => Promise.withResolvers<void>())
  if (!a || !b || !c) throw new Error("three")
  const answers = [a, b, c]
  const applied: number[] = []
  const ask = async (endpoint: (typeof endpoints)[number]) => {
    await answers[endpoint.position - 1]?.promise
    return () => void applied.push(endpoint.position)
  }
  return { endpoints, answers: { a, b, c }, applied, ask }
}

it("goes on once enough have answered, and applies no late answer", async () => {
  const { endpoints, answers, applied, ask } = three()
  const asked = askInTime(endpoints, ask, () => applied.length >= 2)
  answers.a.resolve()
  answers.b.resolve()
  const late = await asked
  expect([late, applied]).toEqual([[endpoints[2]], [1, 2]])
  expect(endpoints.map(each => [each.isLate, each.lateOpen])).toEqual([
    [false, 0],
    [false, 0],
    [true, 1],
  ])
  answers.c.resolve()
  await expect.poll(() => endpoints[2]?.lateOpen).toBe(0)
  expect(applied).toEqual([1, 2])
})

it("waits for all where it is not enough, and for nobody who fails", async () => {
  const { endpoints, answers, applied, ask } = three()
  const asked = askInTime(endpoints, ask, () => false)
  for (const each of [answers.a, answers.b, answers.c]) each.resolve()
  expect([await asked, applied.toSorted()]).toEqual([[], [1, 2, 3]])
  expect(await askInTime([], ask, () => false)).toEqual([])
  const failing = askInTime(
    endpoints,
    () => Promise.reject(new Error("stopped")),
    () => false,
  )
  await expect(failing).rejects.toThrow("stopped")
})

it("an error of one that nobody waits for any more is nobody's", async () => {
  const { endpoints, answers, applied, ask } = three()
  const asked = askInTime(endpoints, ask, () => applied.length >= 2)
  answers.a.resolve()
  answers.b.resolve()
  await asked
  answers.c.reject(new Error("too late"))
  await expect.poll(() => endpoints[2]?.lateOpen).toBe(0)
})

it("waits for a slow endpoint for one round, where the others have left something open for long", () => {
  const endpoints = [newEndpoint("base", "http://127.0.0.1:1")]
  const now = performance.now
  let later = 0
  performance.now = () => now.call(performance) + later
  try {
    openSlowEndpoints(endpoints, true).note(false)
    expect(openSlowEndpoints(endpoints, true).isLong).toBe(false)
    later = 10_001
    const long = openSlowEndpoints(endpoints, true)
    expect([long.isLong, openSlowEndpoints(endpoints, false).isLong]).toEqual([true, false])
    // What it did not settle either is tried again after as long, and not in each round.
    long.note(false)
    expect(openSlowEndpoints(endpoints, true).isLong).toBe(false)
    later = 20_003
    expect(openSlowEndpoints(endpoints, true).isLong).toBe(true)
  } finally {
    performance.now = now
  }
})

it("a round that settles all ends the wait, whether or not an endpoint was slow", () => {
  const endpoints = [newEndpoint("base", "http://127.0.0.1:1")]
  const now = performance.now
  let later = 0
  performance.now = () => now.call(performance) + later
  try {
    openSlowEndpoints(endpoints, true).note(false)
    const healthy = openSlowEndpoints(endpoints, true)
    healthy.note(true)
    later = 10_001
    expect(openSlowEndpoints(endpoints, true).isLong).toBe(false)
  } finally {
    performance.now = now
  }
})
