import { pino } from "pino"
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { until } from "../../test/e2e/program.ts"
import { onRedis, startRedis, type TestRedis } from "../../test/redis.ts"
import { type Limits, openLimits } from "./limiter.ts"

/** A busy machine may take longer to answer than a service waits for; the tests are not about that. */
const PATIENCE_MS = 2_000

let server: TestRedis
const lines: string[] = []
const log = pino({ level: "info" }, { write: line => void lines.push(JSON.parse(line).msg) })
const opened: Limits[] = []

/** This many processes of one installation, as far as Redis knows. */
async function open(n: number): Promise<Limits[]> {
  const all: Limits[] = []
  for (let i = 0; i < n; i++) all.push(await openLimits({ redisUrl: server.url }, log, PATIENCE_MS))
  opened.push(...all)
  return all
}
const countsOf = (caller: string, limit: number) => [{ key: `sluice:limit:{${caller}}:public`, limit }]

/** How many of `n` concurrent requests are admitted. */
async function admittedOf(limits: Limits, caller: string, limit: number, n = 30): Promise<number> {
  const verdicts = await Promise.all(Array.from({ length: n }, () => limits.admit(countsOf(caller, limit))))
  return verdicts.filter(({ admitted }) => admitted).length
}
/** Until all share again: each knows what the others admit. */
let probes = 0
const sharing = (all: Limits[]) =>
  until("shared again", async () => {
    const caller = `probe ${probes++}`
    for (const limits of all) await limits.admit(countsOf(caller, 1_000))
    return (await server.client.llen(`sluice:limit:{${caller}}:public`)) === all.length
  })

describe("without Redis", () => {
  it("logs that this process counts alone", async () => {
    lines.length = 0
    const limits = await openLimits({ redisUrl: undefined }, log)
    expect(lines).toEqual([expect.stringContaining("REDIS_URL is not set")])
    expect(await admittedOf(limits, "a", 5)).toBe(5)
    await limits.close()
  })

  it("starts when Redis is not reachable, and enforces the limits alone", async () => {
    lines.length = 0
    const limits = await openLimits({ redisUrl: "redis://127.0.0.1:1" }, log)
    expect(await admittedOf(limits, "a", 5)).toBe(5)
    expect(lines).toEqual([expect.stringContaining("Redis fails")])
    await limits.close()
  })
})

describe.runIf(onRedis)("limits on Redis", () => {
  beforeAll(async () => {
    server = await startRedis()
  })
  afterAll(() => server.stop())
  beforeEach(async () => {
    await server.client.flushall()
    lines.length = 0
  })
  afterEach(async () => {
    await Promise.all(opened.splice(0).map(each => each.close()))
  })

  it("are shared by all processes", async () => {
    const all = await open(3)
    const admitted = await Promise.all(all.map(limits => admittedOf(limits, "a", 10)))
    expect(admitted.reduce((sum, n) => sum + n)).toBe(10)
    expect(lines).toEqual([])
  })

  it.each(["pause", "kill"] as const)(
    "are enforced with each process's share when Redis fails (%s), and shared again after",
    async how => {
      // The second learns about the first by its own first heartbeat.
      const [first, second] = await open(2)
      if (!first || !second) throw new Error("not opened")
      await server[how]()
      expect(await admittedOf(second, "a", 9)).toBe(5)
      expect(await admittedOf(second, "a", 9)).toBe(0)
      expect(await admittedOf(second, "b", 1)).toBe(1)
      expect(lines.filter(line => line.startsWith("Redis fails"))).toHaveLength(1)
      how === "pause" ? server.resume() : await server.restart()
      await sharing([first, second])
      expect(lines.filter(line => line.startsWith("Redis is back")).length).toBeGreaterThan(0)
      const admitted = await Promise.all([first, second].map(limits => admittedOf(limits, "c", 9)))
      expect(admitted.reduce((sum, n) => sum + n)).toBe(9)
    },
  )

  it("name a wrong password as the reason why they are enforced alone", async () => {
    const words: string[] = []
    const warnings = pino({ level: "warn" }, { write: line => void words.push(JSON.parse(line).err.message) })
    await server.client.config("SET", "requirepass", "right")
    try {
      const limits = await openLimits({ redisUrl: server.url.replace("//", "//:wrong@") }, warnings, PATIENCE_MS)
      await limits.close()
    } finally {
      await server.client.config("SET", "requirepass", "")
    }
    expect(words).toEqual([expect.stringMatching(/WRONGPASS/)])
  })

  it("do not start again when Redis has lost its memory", async () => {
    const [limits] = await open(1)
    if (!limits) throw new Error("not opened")
    expect(await admittedOf(limits, "a", 7)).toBe(7)
    await server.kill()
    expect(await admittedOf(limits, "a", 7)).toBe(0)
    await server.restart()
    await sharing([limits])
    expect(await admittedOf(limits, "a", 7)).toBe(0)
  })
})
