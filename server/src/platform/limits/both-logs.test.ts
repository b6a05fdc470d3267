/** The rules of the sliding log, for the store in memory and for the one in Redis, and that both decide the same. */
import { once } from "node:events"
import { type AddressInfo, connect, createServer } from "node:net"
import fc from "fast-check"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { onRedis, startRedis, type TestRedis } from "../../../test/redis.ts"
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

/** Steps of a clock in milliseconds: some random, some at the edges of windows, where limits could be circumvented. */
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
        let admitted: number[] = []
        let clock = start
        for (const step of schedule) {
          clock = Math.max(0, clock + step)
          // The time that counts: if the clock goes back, it stands still; if it goes back by more than a window, it
          // starts there.
          const newest = admitted.at(-1) ?? 0
          if (newest > clock + windowMs) admitted = admitted.filter(each => each > newest - windowMs).map(() => clock)
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

/** Either time passes or the clock is set back: by how much, and which of two keys makes the next request. */
const setBacks = fc.array(
  fc.record({
    passes: fc.oneof(fc.constant(0), fc.integer({ min: 0, max: 40_000 })),
    back: fc.oneof(fc.constant(0), fc.constantFrom(1, 5_000, windowMs, windowMs + 1, 3_600_000, 86_400_000)),
    key: fc.constantFrom("one", "two"),
  }),
  { minLength: 5, maxLength: 60 },
)

function holdsWhenSetBack(open: () => Promise<Log>, numRuns: number): void {
  it("never admits more than the limit in a window of true time, with the true wait in each refusal, however the clock is set back", async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 4 }), setBacks, async (limit, schedule) => {
        const log = await open()
        const admitted: { key: string; at: number }[] = []
        let at = 200 * 86_400_000
        let behind = 0
        for (const { passes, back, key } of schedule) {
          at += passes
          behind += back
          const counts = [
            { key: `{a}:${key}`, limit },
            { key: "{a}", limit: limit + 2 },
          ]
          const ask = () => log.admit(counts, at - behind)
          let verdict = await ask()
          if (!verdict.admitted) {
            expect(verdict.waitMs).toBeLessThanOrEqual(2 * windowMs)
            at += verdict.waitMs - 1
            expect((await ask()).admitted).toBe(false)
            at += 1
            verdict = await ask()
          }
          expect(verdict.admitted).toBe(true)
          admitted.push({ key, at })
          const inWindow = admitted.filter(each => each.at > at - windowMs)
          expect(inWindow.length).toBeLessThanOrEqual(limit + 2)
          expect(inWindow.filter(each => each.key === key).length).toBeLessThanOrEqual(limit)
        }
      }),
      { numRuns },
    )
  })
}

describe("the log in memory", () => {
  const open = async () => inMemory()
  holdsTheLaws(open, 200)
  holdsWhenSetBack(open, 200)
})

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
    const shared = sharedLog(redis, "", () => clock ?? Number.NaN)
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
  holdsWhenSetBack(emptied, 40)

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
        const memory = inMemory()
        const shared = await emptied()
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
        return { redis, log: sharedLog(redis, "") }
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

  it("keeps a list as long as its entries count, also where the clock was set back", async () => {
    const lifeAfter = async (key: string, nowMs: number) => {
      const counts = [
        { key: `{a}:${key}`, limit: 9 },
        { key: "{a}", limit: 99 },
      ]
      await log.admit(counts, nowMs)
      return await Promise.all(counts.map(each => server.client.pttl(each.key)))
    }
    await lifeAfter("one", start)
    const behindMs = 50_000
    for (let i = 0; i < 2; i++) {
      const [one = 0, all = 0] = await lifeAfter("one", start - behindMs)
      for (const life of [one, all]) expect(life).toBeGreaterThan(windowMs + behindMs)
      for (const key of ["{a}:one", "{a}"]) await server.client.pexpire(key, 1_000)
    }
    // A list without future entries follows the clock.
    const quarters = [0, 1, 2].map(n => start - behindMs + (n * windowMs) / 4)
    for (const nowMs of quarters) {
      const [two = 0] = await lifeAfter("two", nowMs)
      expect(two).toBeGreaterThan(windowMs)
      expect(two).toBeLessThanOrEqual(windowMs * 1.25)
      await server.client.pexpire("{a}:two", 1_000)
    }
    // Set back by more than a window: the list counts from then on.
    await server.client.pexpire("{a}", 3_600_000)
    await lifeAfter("two", start - 500_000)
    const renewed = await server.client.pttl("{a}")
    expect(renewed).toBeGreaterThan(windowMs)
    expect(renewed).toBeLessThanOrEqual(windowMs * 1.25)
  })

  it("drops what has left the window in few steps, however much it is", async () => {
    const limit = 2_500
    const memory = inMemory()
    const admitBoth = async (nowMs: number, n = 1) => {
      clock = nowMs
      const verdicts = await Promise.all(Array.from({ length: n }, () => log.admit([{ key: "{a}", limit }], nowMs)))
      for (const verdict of verdicts) expect(verdict).toEqual(await memory.admit([{ key: "{a}", limit }], nowMs))
    }
    /** How many commands Redis ran for the last request. */
    const commandsOf = async (work: () => Promise<void>) => {
      await server.client.config("RESETSTAT")
      await work()
      const stats = await server.client.info("commandstats")
      return [...stats.matchAll(/cmdstat_(?:l\w+|rpop|unlink|pexpire):calls=(\d+)/g)].reduce(
        (n, [_, calls]) => n + Number(calls),
        0,
      )
    }
    for (let i = 0; i < 5; i++) await admitBoth(start + i * 1_000, 400)
    // Of 2,000 entries: those of one second leave the window, then those of another second, then all.
    for (const after of [0, 1_000, 3_000])
      expect(await commandsOf(() => admitBoth(start + windowMs + after))).toBeLessThan(30)
    await admitBoth(start + 5_000 + windowMs, 2_000)
    expect(await commandsOf(() => admitBoth(start + 5_000 + 3 * windowMs))).toBeLessThan(6)
    expect(await server.client.llen("{a}")).toBe(1)
  })

  it("counts a long list as of the first request after the clock was set back", async () => {
    const counts = [{ key: "{a}", limit: 2_500 }]
    clock = start
    await Promise.all(Array.from({ length: 2_500 }, () => log.admit(counts, start)))
    const back = start - 600_000
    expect(await log.admit(counts, back)).toMatchObject({ admitted: false, waitMs: windowMs })
    expect(await log.admit(counts, back + 1)).toMatchObject({ admitted: false, waitMs: windowMs - 1 })
    expect(await server.client.llen("{a}")).toBe(2_500)
    expect(await log.admit(counts, back + windowMs)).toMatchObject({ admitted: true, remaining: 2_499 })
  })

  it("replaces a connection that was accepted and is never answered", async () => {
    let accepted = 0
    const front = createServer(socket => {
      accepted++
      socket.on("error", () => undefined)
      if (accepted === 1) return void socket.resume()
      const redis = connect(server.port, "127.0.0.1").on("error", () => undefined)
      socket.pipe(redis).pipe(socket)
    })
    await once(front.listen(0, "127.0.0.1"), "listening")
    const redis = redisConnection(`redis://127.0.0.1:${(front.address() as AddressInfo).port}`, 500)
    redis.on("error", () => undefined)
    const refused = redis.connect().catch((error: Error) => error.message)
    await until("a connection that answers", () =>
      redis.ping().then(
        () => true,
        () => false,
      ),
    )
    expect(await refused).toMatch(/closed/)
    expect(accepted).toBeGreaterThan(1)
    redis.disconnect()
    front.close()
  })

  it("works on after Redis has forgotten its scripts", async () => {
    await log.admit([{ key: "{a}", limit: 2 }], start)
    await server.client.script("FLUSH")
    expect((await log.admit([{ key: "{a}", limit: 2 }], start)).admitted).toBe(true)
    expect((await log.admit([{ key: "{a}", limit: 2 }], start)).admitted).toBe(false)
  })
})
