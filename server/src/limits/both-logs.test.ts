/** The rules of the sliding log, for the store in memory and for the one in Redis, and that both decide the same. */
import fc from "fast-check"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onRedis, startRedis, type TestRedis } from "../../test/redis.ts"
import { redisConnection, sharedLog } from "./shared-log.ts"
import { type Count, memoryLog, type Verdict } from "./sliding-log.ts"

const windowMs = 60_000
const start = 1_000_000

interface Log {
  admit(counts: readonly Count[], nowMs: number): Promise<Verdict>
}

const inMemory = (): Log => {
  const log = memoryLog({ windowMs, maxKeys: 1_000 })
  return { admit: async (counts, nowMs) => log.admit(counts, nowMs) }
}

/** Steps of a clock in milliseconds: some random, some where limits could be circumvented, at the edges of windows. */
const steps = (maxLength: number) =>
  fc.array(
    fc.oneof(
      fc.integer({ min: -5_000, max: 40_000 }),
      fc.constantFrom(
        0,
        0,
        0,
        1,
        -1,
        windowMs - 1,
        windowMs,
        windowMs + 1,
        windowMs / 2,
        -windowMs,
        3_600_000,
        -3_600_000,
      ),
    ),
    { minLength: 5, maxLength },
  )

function holdsTheLaws(open: () => Promise<Log>, numRuns: number): void {
  it("never admits more than the limit in any window, whatever the schedule and wherever the clock steps", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 6 }), steps(60), async (limit, schedule) => {
        const log = await open()
        const admitted: number[] = []
        let clock = start
        for (const step of schedule) {
          clock = Math.max(0, clock + step)
          // The time that counts: a clock that goes back stands still.
          const time = Math.max(clock, admitted.at(-1) ?? 0)
          if ((await log.admit([{ key: "{a}", limit }], clock)).admitted) admitted.push(time)
        }
        for (const end of admitted)
          expect(admitted.filter(time => time > end - windowMs && time <= end).length).toBeLessThanOrEqual(limit)
      }),
      { numRuns },
    )
  })

  it("admits whenever there is room: one less than the limit in the window before", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 6 }), steps(60), async (limit, schedule) => {
        const log = await open()
        const admitted: number[] = []
        let clock = start
        for (const step of schedule) {
          clock += Math.abs(step)
          const inWindow = admitted.filter(time => time > clock - windowMs).length
          const verdict = await log.admit([{ key: "{a}", limit }], clock)
          expect(verdict.admitted).toBe(inWindow < limit)
          if (verdict.admitted) admitted.push(clock)
          expect(verdict.remaining).toBe(limit - admitted.filter(time => time > clock - windowMs).length)
        }
      }),
      { numRuns },
    )
  })

  it("admits right after the wait that it announced, and not a millisecond before", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 5 }), steps(30), async (limit, schedule) => {
        let clock = start
        const log = await open()
        const counts = [
          { key: "{a}:route", limit },
          { key: "{a}:public", limit: limit + 1 },
        ]
        for (const step of schedule) {
          clock += Math.abs(step)
          const { admitted, waitMs, resetMs } = await log.admit(counts, clock)
          expect(resetMs).toBeGreaterThan(0)
          if (admitted) continue
          expect((await log.admit(counts, clock + waitMs - 1)).admitted).toBe(false)
          clock += waitMs
          expect((await log.admit(counts, clock)).admitted).toBe(true)
        }
      }),
      { numRuns },
    )
  })
}

describe("the log in memory", () => holdsTheLaws(async () => inMemory(), 200))

describe.runIf(onRedis)("the log on Redis", () => {
  let server: TestRedis
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.stop())
  beforeEach(async () => void (await server.client.flushall()))

  let clock: number | undefined
  let log: Log
  beforeAll(async () => {
    const redis = redisConnection(server.url)
    await redis.connect()
    const shared = sharedLog(redis, () => clock ?? Number.NaN)
    log = {
      admit: (counts, nowMs) => {
        clock = nowMs
        return shared.admit(counts)
      },
    }
    return () => redis.disconnect()
  })
  const emptied = async () => {
    await server.client.flushall()
    return log
  }

  holdsTheLaws(emptied, 40)

  it("decides step by step as the one in memory", async () => {
    const request = fc.record({
      step: fc.oneof(
        fc.integer({ min: -5_000, max: 40_000 }),
        fc.constantFrom(0, 0, 1, -1, windowMs - 1, windowMs, windowMs + 1, -windowMs, 3_600_000, -3_600_000),
      ),
      buckets: fc.uniqueArray(fc.constantFrom("route", "public", "other"), { minLength: 1, maxLength: 3 }),
      // Settings change, and two processes may have different ones for a while.
      raised: fc.integer({ min: 0, max: 4 }),
    })
    const limits = fc.record({
      route: fc.integer({ min: 1, max: 3 }),
      public: fc.integer({ min: 1, max: 5 }),
      other: fc.integer({ min: 1, max: 9 }),
    })
    await fc.assert(
      fc.asyncProperty(limits, fc.array(request, { maxLength: 60 }), async (limitOf, requests) => {
        const [memory, shared] = [inMemory(), await emptied()]
        let now = start
        for (const { step, buckets, raised } of requests) {
          now = Math.max(0, now + step)
          const counts = buckets.map(bucket => ({
            key: `{a}:${bucket}`,
            limit: limitOf[bucket as keyof typeof limitOf] + raised,
          }))
          expect(await shared.admit(counts, now)).toEqual(await memory.admit(counts, now))
        }
      }),
      { numRuns: 60 },
    )
  })

  it("decides many at once as one after the other", async () => {
    clock = start
    const counts = (i: number) => [
      { key: `{${i % 7}}:route`, limit: 3 },
      { key: `{${i % 7}}:public`, limit: 5 },
    ]
    const verdicts = await Promise.all(Array.from({ length: 350 }, (_, i) => log.admit(counts(i), start)))
    const memory = inMemory()
    for (const [i, verdict] of verdicts.entries()) expect(verdict).toEqual(await memory.admit(counts(i), start))
  })

  it("admits exactly the limit to eight clients that race, by Redis' own clock", async () => {
    const clients = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const redis = redisConnection(server.url)
        await redis.connect()
        return { redis, log: sharedLog(redis) }
      }),
    )
    const counts = [
      { key: "{a}:route", limit: 60 },
      { key: "{a}:public", limit: 90 },
    ]
    const verdicts = await Promise.all(
      clients.flatMap(each => Array.from({ length: 40 }, () => each.log.admit(counts))),
    )
    for (const { redis } of clients) redis.disconnect()
    expect(verdicts.filter(({ admitted }) => admitted).length).toBe(60)
    expect(verdicts.map(({ remaining }) => remaining).filter(remaining => remaining > 0)).toHaveLength(59)
    expect(await server.client.llen("{a}:route")).toBe(60)
    // All or nothing: a request that the route's limit refused did not count against the others.
    expect(await server.client.llen("{a}:public")).toBe(60)
  })

  it("keeps a list until its newest entry has left the window, and a quarter of a window more at most", async () => {
    const lifeAfter = async (nowMs: number) => {
      await log.admit([{ key: "{a}", limit: 9 }], nowMs)
      return await server.client.pttl("{a}")
    }
    const first = await lifeAfter(start)
    expect(first).toBeGreaterThan(windowMs)
    expect(first).toBeLessThanOrEqual(windowMs * 1.25)
    // The list's expiry is set once in each quarter.
    await server.client.pexpire("{a}", windowMs)
    const end = start + windowMs / 4 - (start % (windowMs / 4))
    expect(await lifeAfter(end - 1)).toBeLessThanOrEqual(windowMs)
    expect(await lifeAfter(end)).toBeGreaterThan(windowMs)
  })

  it("works on after Redis has forgotten its scripts", async () => {
    await log.admit([{ key: "{a}", limit: 2 }], start)
    await server.client.script("FLUSH")
    expect((await log.admit([{ key: "{a}", limit: 2 }], start)).admitted).toBe(true)
    expect((await log.admit([{ key: "{a}", limit: 2 }], start)).admitted).toBe(false)
  })
})
