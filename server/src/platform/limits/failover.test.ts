/** The limits where a primary of Redis is lost and its replica takes over: by Sentinel, and in a Cluster. */
import { hash } from "node:crypto"
import { pino } from "pino"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { until } from "../../../test/e2e/program.ts"
import { onRedis, type TestRedis } from "../../../test/redis.ts"
import { startCluster, startSentinels, type TestRedisGroup } from "../../../test/redis-groups.ts"
import { KEYS_PER_MERCHANT } from "./buckets.ts"
import { type Limits, openLimits } from "./limiter.ts"

/** A busy machine may take longer to answer than a service waits for; the tests are not about that. */
const PATIENCE_MS = 2_000
const LIMIT = 12

/** The counts of a request with an API key: by the key, and by all keys of its merchant. */
const countsOf = (caller: string, limit = LIMIT) => [
  { key: `{${caller}}:key:public`, limit },
  { key: `{${caller}}:public`, limit: limit * KEYS_PER_MERCHANT },
]

// Concurrently: each test waits for servers that wait for each other.
describe.runIf(onRedis).each([
  { name: "Sentinel", start: startSentinels },
  { name: "Cluster", start: startCluster },
])("limits by $name", { concurrent: true }, ({ start }) => {
  let group: TestRedisGroup
  const all: Limits[] = []
  const lines: string[] = []
  const log = pino({ level: "info" }, { write: line => void lines.push(JSON.parse(line).msg) })
  beforeAll(async () => {
    group = await start()
    for (let i = 0; i < 2; i++)
      all.push(await openLimits({ redisUrl: group.url, installation: "tested" }, log, PATIENCE_MS))
  })
  afterAll(async () => {
    await Promise.all(all.map(each => each.close()))
    await group.stop()
  })

  /** How many of twenty concurrent requests of each process are admitted. */
  const admitted = async (caller: string): Promise<number[]> =>
    await Promise.all(
      all.map(async limits => {
        const verdicts = await Promise.all(Array.from({ length: 20 }, () => limits.admit(countsOf(caller))))
        return verdicts.filter(verdict => verdict.admitted).length
      }),
    )
  const sum = (values: number[]) => values.reduce((a, b) => a + b)
  /** Callers whose limits are on this server. */
  const callersOn = async (server: TestRedis, n: number): Promise<[string, ...string[]]> => {
    const found: string[] = []
    for (let i = 0; found.length < n; i++)
      if ((await group.primaryOf(`{caller ${i}}`)).port === server.port) found.push(`caller ${i}`)
    return found as [string, ...string[]]
  }
  /** Whether the limits are shared: the second process sees what the first one counts. */
  let probes = 0
  const isShared = async (): Promise<boolean> => {
    const caller = `probe ${probes++}`
    const [one, two] = all
    const before = await one?.admit(countsOf(caller))
    const after = await two?.admit(countsOf(caller))
    return before?.remaining === LIMIT - 1 && after?.remaining === LIMIT - 2
  }

  it("are exact for many callers at once, go on alone while the primary is lost, and are shared by the next one", async () => {
    await until("shared", isShared)
    // Callers on every node of a cluster, at the same time.
    const callers = Array.from({ length: 8 }, (_, i) => hash("sha256", `${i}`, "hex"))
    expect((await Promise.all(callers.map(admitted))).map(sum)).toEqual(callers.map(() => LIMIT))

    const [lost] = group.servers as [TestRedis]
    const [used, ...fresh] = await callersOn(lost, 3)
    expect(sum(await admitted(used))).toBe(LIMIT)
    await until("copied", async () => Number(await lost.client.wait(1, 1_000)) >= 1)
    await lost.kill()
    // The second process knows about the first by its own first heartbeat.
    expect((await admitted(fresh[0] ?? ""))[1]).toBe(LIMIT / 2)
    await until("another server has its keys", async () => (await group.primaryOf(`{${used}}`)).port !== lost.port)
    await until("shared again", isShared)
    expect(sum(await admitted(fresh[1] ?? ""))).toBe(LIMIT)
    // The replica has what was counted before.
    expect(sum(await admitted(used))).toBe(0)
    expect(lines.filter(line => line.startsWith("Redis fails")).length).toBeGreaterThan(0)
    expect(lines.at(-1)).toMatch(/^Redis is back/)
  })
})
