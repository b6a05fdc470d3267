/**
 * What a rate-limit check costs, compared with rate-limiter-flexible and @fastify/rate-limit: in memory, on one Redis,
 * and within a request. The rounds of all contenders are interleaved and their medians printed, so that a busy machine
 * slows all of them equally.
 */
import { Agent, request } from "node:http"
import type { AddressInfo } from "node:net"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
// @ts-expect-error: the store has no types of its own.
import LocalStore from "@fastify/rate-limit/store/LocalStore.js"
// @ts-expect-error: as above.
import RedisStore from "@fastify/rate-limit/store/RedisStore.js"
import { RateLimiterMemory, RateLimiterRedis } from "rate-limiter-flexible"
import { readSettings } from "../server/src/platform/config/read-settings.ts"
import type { Context } from "../server/src/platform/context.ts"
import { nobodyKnown } from "../server/src/platform/http/authenticate.ts"
import { openServer } from "../server/src/platform/http/server.ts"
import { type Limits, openLimits, processLimits } from "../server/src/platform/limits/limiter.ts"
import { redisConnection, sharedLog } from "../server/src/platform/limits/shared-log.ts"
import { memoryLog } from "../server/src/platform/limits/sliding-log.ts"
import { openLog } from "../server/src/platform/log.ts"
import { redisBinary, startRedis, type TestRedis } from "../server/test/redis.ts"

const LIMIT = 30
const windowMs = 60_000
const ROUNDS = 9
const OURS = "Sluice (exact)"
/** Measures one contender once: checks per second. */
type Measure = () => Promise<number>

const say = (text: string) => process.stdout.write(`${text}\n`)
const median = (values: number[]): number => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? Number.NaN
const keysOf = (callers: number) =>
  Array.from({ length: callers }, (_, i) => `{10.${i >> 16}.${(i >> 8) & 255}.${i & 255}}:public`)

setFlagsFromString("--expose-gc")
/** Run between measurements, so that no contender pays for the garbage of the one before. */
const collectGarbage = runInNewContext("gc") as () => void

/** Measures all contenders, round by round. Prints each one's median and its ratio to the fastest of the others. */
async function compare(title: string, contenders: Record<string, Measure>): Promise<void> {
  const rates = new Map<string, number[]>(Object.keys(contenders).map(name => [name, []]))
  // The first round warms up.
  for (let round = 0; round <= ROUNDS; round++)
    for (const [name, measure] of Object.entries(contenders)) {
      collectGarbage()
      const rate = await measure()
      if (round > 0) rates.get(name)?.push(rate)
    }
  const medians = [...rates].map(([name, all]) => [name, median(all)] as const)
  const fastestPeer = Math.max(...medians.filter(([name]) => name !== OURS).map(([_, rate]) => rate))
  say(`\n${title}`)
  for (const [name, rate] of medians) {
    const perSecond = Math.round(rate / 1_000)
      .toLocaleString("en")
      .padStart(8)
    say(`  ${name.padEnd(36)}${perSecond},000 checks/s${(rate / fastestPeer).toFixed(2).padStart(8)}`)
  }
}

function inMemory(callers: number): Record<string, Measure> {
  const checks = 500_000
  const keys = keysOf(callers)
  const key = (i: number) => keys[i % callers] as string
  const ignore = () => undefined
  const timed = async (work: () => void | Promise<void>) => {
    const start = performance.now()
    await work()
    return (checks / (performance.now() - start)) * 1_000
  }
  return {
    [OURS]: () => {
      const log = memoryLog({ windowMs, maxKeys: 200_000 })
      const count = { key: "", limit: LIMIT }
      const counts = [count]
      return timed(() => {
        for (let i = 0; i < checks; i++) {
          count.key = key(i)
          log.admit(counts)
        }
      })
    },
    "@fastify/rate-limit, LocalStore": () => {
      const store = new LocalStore(false, false, 100_000)
      return timed(() => {
        for (let i = 0; i < checks; i++) store.incr(key(i), ignore, windowMs, LIMIT)
      })
    },
    "rate-limiter-flexible, Memory": async () => {
      const limiter = new RateLimiterMemory({ points: LIMIT, duration: windowMs / 1_000 })
      const rate = await timed(async () => {
        for (let i = 0; i < checks; i++) await limiter.consume(key(i)).catch(ignore)
      })
      // This limiter keeps a timer for each key, which would stay for a minute and slow down the next contender.
      for (const each of keys) await limiter.delete(each)
      return rate
    },
  }
}

function onRedis(server: TestRedis, parallel: number, checks: number): Record<string, Measure> {
  const keys = keysOf(1_000)
  const measure = (open: (redis: ReturnType<typeof redisConnection>) => (key: string) => Promise<unknown>): Measure => {
    return async () => {
      await server.client.flushall()
      // All contenders get the same kind of connection.
      const redis = redisConnection(server.url)
      await redis.connect()
      const check = open(redis)
      let next = 0
      const start = performance.now()
      await Promise.all(
        Array.from({ length: parallel }, async () => {
          while (next < checks) await check(keys[next++ % keys.length] as string)
        }),
      )
      const rate = (checks / (performance.now() - start)) * 1_000
      redis.disconnect()
      return rate
    }
  }
  return {
    [OURS]: measure(redis => {
      const log = sharedLog(redis, "sluice:bench:log:")
      return key => log.admit([{ key, limit: LIMIT }])
    }),
    "@fastify/rate-limit, RedisStore": measure(redis => {
      const store = new RedisStore(false, false, redis)
      return key => new Promise(resolve => store.incr(key, resolve, windowMs, LIMIT))
    }),
    "rate-limiter-flexible, Redis": measure(redis => {
      const limiter = new RateLimiterRedis({ storeClient: redis, points: LIMIT, duration: windowMs / 1_000 })
      return key => limiter.consume(key).catch(() => undefined)
    }),
  }
}

/**
 * The time that a limited request takes in addition to one to a path without a limit, on one server over loopback HTTP.
 */
async function withinRequests(title: string, limits: Limits): Promise<void> {
  const log = openLog("silent")
  const settings = { ...readSettings({}), trustedProxies: ["127.0.0.1"] }
  const app = openServer({ settings, limits, log } as Context, nobodyKnown)
  await app.listen({ host: "127.0.0.1", port: 0 })
  const { port } = app.server.address() as AddressInfo
  const agent = new Agent({ keepAlive: true, maxSockets: 1 })
  let caller = 0
  const ask = (path: string) =>
    new Promise<void>((resolve, reject) => {
      const from = `10.${(caller >> 14) & 255}.${(caller >> 6) & 255}.${caller & 63}`
      caller++
      request({ port, path, agent, headers: { "x-forwarded-for": from } }, answer => answer.resume().on("end", resolve))
        .on("error", reject)
        .end()
    })
  const meanUs = async (path: string) => {
    const start = performance.now()
    for (let i = 0; i < 500; i++) await ask(path)
    return (performance.now() - start) * 2
  }
  const [bare, added]: [number[], number[]] = [[], []]
  for (let round = 0; round < 20; round++) {
    // Both end in the same 404. Only one of them is counted, for its route and its address.
    const without = await meanUs("/docs/pay/status/x")
    const limited = await meanUs("/api/pay/status/x")
    if (round < 4) continue
    bare.push(without)
    added.push(limited - without)
  }
  say(
    `  ${title.padEnd(36)}${median(bare).toFixed(0).padStart(8)} µs bare, limited ${median(added).toFixed(1)} µs more`,
  )
  agent.destroy()
  await app.close()
  await limits.close()
}

say(`Limits of ${LIMIT} a minute. Right: the ratio to the fastest of the others, which are not exact.`)
await compare("In memory, 1,000 callers", inMemory(1_000))
await compare("In memory, 50,000 callers", inMemory(50_000))
if (!redisBinary()) {
  say("\nRedis is not installed: apt-get install redis-server")
  process.exit(1)
}
const server = await startRedis()
await compare("On one Redis, 100 checks under way", onRedis(server, 100, 40_000))
await compare("On one Redis, one check after the other", onRedis(server, 1, 8_000))
say("\nWithin a request over loopback HTTP, one after the other, two buckets")
await withinRequests("in memory", processLimits())
await withinRequests("on Redis", await openLimits({ redisUrl: server.url, installation: "bench" }, openLog("silent")))
await server.stop()
process.exit(0)
