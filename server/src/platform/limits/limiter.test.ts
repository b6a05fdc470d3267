import { pino } from "pino"
import { describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { onRedis, startRedis, type TestRedis } from "../../../test/redis.ts"
import { type Limits, openLimits } from "./limiter.ts"

/** A busy machine may take longer to answer than a service waits for; the tests are not about that. */
const PATIENCE_MS = 2_000

/** A Redis, the processes of an installation that use it, and their log lines. */
interface Place {
  server: TestRedis
  lines: string[]
  /** Starts this many more processes of an installation. */
  open(n: number, installation?: string): Promise<Limits[]>
}

/**
 * Runs a test with a Redis of its own. The tests run concurrently, as most wait for processes to find their Redis
 * again.
 */
const onItsOwn = (work: (place: Place) => Promise<void>) => async (): Promise<void> => {
  const server = await startRedis()
  const opened: Limits[] = []
  const { lines, log } = newLog()
  const open = async (n: number, installation = "one") => {
    const all: Limits[] = []
    for (let i = 0; i < n; i++) all.push(await openLimits({ redisUrl: server.url, installation }, log, PATIENCE_MS))
    opened.push(...all)
    return all
  }
  await work({ server, lines, open }).finally(async () => {
    await Promise.all(opened.map(each => each.close()))
    await server.stop()
  })
}

function newLog() {
  const lines: string[] = []
  return { lines, log: pino({ level: "info" }, { write: line => void lines.push(JSON.parse(line).msg) }) }
}

const countsOf = (caller: string, limit: number) => [{ key: `{${caller}}:public`, limit }]

/** How many of `n` concurrent requests are admitted. */
async function admittedOf(limits: Limits, caller: string, limit: number, n = 30): Promise<number> {
  const verdicts = await Promise.all(Array.from({ length: n }, () => limits.admit(countsOf(caller, limit))))
  return verdicts.filter(({ admitted }) => admitted).length
}
/** Waits until all processes share again: each knows what the others admit. */
let probes = 0
const sharing = (server: TestRedis, all: Limits[]) =>
  until("shared again", async () => {
    const caller = `probe ${probes++}`
    for (const limits of all) await limits.admit(countsOf(caller, 1_000))
    return (await server.client.llen(`sluice:one:log:{${caller}}:public`)) === all.length
  })

describe("without Redis", () => {
  it("logs that this process counts alone", async () => {
    const { lines, log } = newLog()
    const limits = await openLimits({ redisUrl: undefined, installation: "one" }, log)
    expect(lines).toEqual([expect.stringContaining("REDIS_URL is not set")])
    expect(await admittedOf(limits, "a", 5)).toBe(5)
    await limits.close()
  })

  it("starts when Redis is not reachable, and enforces the limits alone", async () => {
    const { lines, log } = newLog()
    const limits = await openLimits({ redisUrl: "redis://127.0.0.1:1", installation: "one" }, log)
    expect(await admittedOf(limits, "a", 5)).toBe(5)
    expect(lines).toEqual([expect.stringContaining("Redis fails")])
    await limits.close()
  })
})

describe.runIf(onRedis)("limits on Redis", { concurrent: true }, () => {
  it(
    "are shared by all processes",
    onItsOwn(async ({ lines, open }) => {
      const all = await open(3)
      const admitted = await Promise.all(all.map(limits => admittedOf(limits, "a", 10)))
      expect(admitted.reduce((sum, n) => sum + n)).toBe(10)
      expect(lines).toEqual([])
    }),
  )

  it(
    "are not shared with another installation on the same database, whose processes are not counted",
    onItsOwn(async ({ server, open }) => {
      const [one, other, more] = await Promise.all([open(1), open(1, "two"), open(1, "two")])
      const admitted = (all: Limits[]) => Promise.all(all.map(limits => admittedOf(limits, "a", 8)))
      expect(await admitted(one)).toEqual([8])
      expect((await admitted([...other, ...more])).reduce((sum, n) => sum + n)).toBe(8)
      await until("each knows its processes", async () => (await server.client.zcard("sluice:two:instances")) === 2)
      expect(await server.client.zcard("sluice:one:instances")).toBe(1)
      await server.kill()
      await until("it counts alone", async () => (await admittedOf(one[0] as Limits, `b ${probes++}`, 9)) === 9)
    }),
  )

  it.each(["pause", "kill"] as const)(
    "are enforced with each process's share when Redis fails (%s), and shared again after",
    how =>
      onItsOwn(async ({ server, lines, open }) => {
        // The second learns about the first by its own first heartbeat.
        const [first, second] = await open(2)
        if (!first || !second) throw new Error("not opened")
        await server[how]()
        expect(await admittedOf(second, "a", 9)).toBe(5)
        expect(await admittedOf(second, "a", 9)).toBe(0)
        expect(await admittedOf(second, "b", 1)).toBe(1)
        expect(lines.filter(line => line.startsWith("Redis fails"))).toHaveLength(1)
        how === "pause" ? server.resume() : await server.restart()
        await sharing(server, [first, second])
        expect(lines.filter(line => line.startsWith("Redis is back")).length).toBeGreaterThan(0)
        const admitted = await Promise.all([first, second].map(limits => admittedOf(limits, "c", 9)))
        expect(admitted.reduce((sum, n) => sum + n)).toBe(9)
      })(),
  )

  it(
    "are divided among those that live, though Redis' clock was ahead when it counted others",
    onItsOwn(async ({ server, open }) => {
      const inAnHour = Date.now() + 3_600_000
      for (let n = 0; n < 50; n++) await server.client.zadd("sluice:one:instances", inAnHour, `gone ${n}`)
      const [limits] = await open(1)
      if (!limits) throw new Error("not opened")
      await until("the others are forgotten", async () => (await server.client.zcard("sluice:one:instances")) === 1)
      await server.kill()
      await until("it counts alone", async () => (await admittedOf(limits, `alone ${probes++}`, 9)) === 9)
    }),
  )

  it(
    "look for the primary again when their server is one no more",
    onItsOwn(async ({ server, open }) => {
      const [limits] = await open(1)
      if (!limits) throw new Error("not opened")
      const connections = async () => {
        const list = `${await server.client.call("CLIENT", "LIST", "TYPE", "normal")}`
        const own = await server.client.client("ID")
        return [...list.matchAll(/^id=(\d+)/gm)].map(([, id]) => id).filter(id => id !== `${own}`)
      }
      const before = await connections()
      await server.client.call("REPLICAOF", "127.0.0.1", "1")
      await until("it has another connection", async () => (await connections()).some(id => !before.includes(id)))
      await server.client.call("REPLICAOF", "NO", "ONE")
      await sharing(server, [limits])
    }),
  )

  it(
    "name a wrong password as the reason why they are enforced alone",
    onItsOwn(async ({ server }) => {
      const words: string[] = []
      const warnings = pino({ level: "warn" }, { write: line => void words.push(JSON.parse(line).err.message) })
      await server.client.config("SET", "requirepass", "right")
      const limits = await openLimits(
        { redisUrl: server.url.replace("//", "//:wrong@"), installation: "one" },
        warnings,
        PATIENCE_MS,
      )
      await limits.close()
      expect(words).toEqual([expect.stringMatching(/WRONGPASS/)])
    }),
  )

  it(
    "are not opened on a database that Redis lacks, and are on one that it has",
    onItsOwn(async ({ server, lines }) => {
      const { log } = newLog()
      await expect(
        openLimits({ redisUrl: `${server.url}/9999`, installation: "one" }, log, PATIENCE_MS),
      ).rejects.toThrow(
        /^REDIS_URL names database 9999, and Redis refuses it \(ERR DB index is out of range\): name a database that/,
      )
      const limits = await openLimits({ redisUrl: `${server.url}/15`, installation: "one" }, log, PATIENCE_MS)
      expect(await admittedOf(limits, "a", 5)).toBe(5)
      expect(await server.client.info("keyspace")).toMatch(/db15:keys=2/)
      expect(lines).toEqual([])
      await limits.close()
    }),
  )

  it(
    "do not start again when Redis has lost its memory",
    onItsOwn(async ({ server, open }) => {
      const [limits] = await open(1)
      if (!limits) throw new Error("not opened")
      expect(await admittedOf(limits, "a", 7)).toBe(7)
      await server.kill()
      expect(await admittedOf(limits, "a", 7)).toBe(0)
      await server.restart()
      await sharing(server, [limits])
      expect(await admittedOf(limits, "a", 7)).toBe(0)
    }),
  )
})
