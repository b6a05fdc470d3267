/**
 * The sliding log of many processes: the same steps as in `sliding-log.ts`, in Lua on lists in Redis, newest first.
 * Redis' own clock counts; it is never taken below a key's newest entry.
 */
import { createRequire } from "node:module"
import type { Cluster, Redis, Result } from "ioredis"
import { parseRedisAddress } from "../config/redis-address.ts"
import type { Count, Verdict } from "./sliding-log.ts"

declare module "ioredis" {
  interface RedisCommander<Context> {
    sluiceAdmit(numberOfKeys: number, ...args: (string | number)[]): Result<number[], Context>
    sluiceBeat(key: string, id: string, lifeMs: number): Result<number, Context>
  }
}

/**
 * KEYS the lists. ARGV the window in milliseconds, the time or an empty text, then for each request the number of its
 * keys and a limit for each. Returns for each request wait, limit, remaining and reset of the bucket closest to its
 * limit.
 *
 * A list's expiry follows Redis' clock: if that is set back, it blocks a caller for at most one window more.
 */
const admitScript = `
local call = redis.call
local window, clock = tonumber(ARGV[1]), tonumber(ARGV[2])
if not clock then
  local time = call('TIME')
  clock = time[1] * 1000 + math.floor(time[2] / 1000)
end
local answers, first, arg = {}, 1, 3
while arg <= #ARGV do
  local size = tonumber(ARGV[arg])
  local now, blocking, full = clock, nil, 0
  for i = 0, size - 1 do
    local key, limit = KEYS[first + i], ARGV[arg + 1 + i]
    local newest = call('LINDEX', key, 0)
    if newest then
      now = math.max(now, tonumber(newest))
      local time = tonumber(call('LINDEX', key, limit - 1) or nil)
      if time and (not blocking or time > blocking) then blocking, full = time, limit end
    end
  end
  local wait = blocking and blocking + window - now or 0
  local remaining, reset = 0, wait
  if wait <= 0 then
    wait, remaining = 0, nil
    for i = 0, size - 1 do
      local key, limit = KEYS[first + i], ARGV[arg + 1 + i]
      local oldest = tonumber(call('LINDEX', key, -1) or nil)
      while oldest and oldest <= now - window do
        call('RPOP', key)
        oldest = tonumber(call('LINDEX', key, -1) or nil)
      end
      local left = limit - call('LPUSH', key, string.format('%.0f', now))
      call('PEXPIRE', key, window)
      if not remaining or left < remaining then
        full, remaining, reset = limit, left, (oldest or now) + window - now
      end
    end
  end
  local n = #answers
  answers[n + 1], answers[n + 2], answers[n + 3], answers[n + 4] = wait, tonumber(full), remaining, reset
  first, arg = first + size, arg + 1 + size
end
return answers`

/** KEYS the sorted set of instances. ARGV an instance's id, and for how many milliseconds a heartbeat counts. */
const beatScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])`

const CONNECT_TIMEOUT_MS = 2_000
const MAX_RETRY_MS = 1_000
/** Requests in one call, which holds Redis for half a millisecond at most. */
const MAX_BATCH = 100
const ANSWER_LENGTH = 4

/** How often a client of a cluster asks where each slot is; a node that moved one says so at once. */
const SLOTS_REFRESH_MS = 5_000

export type RedisClient = Redis | Cluster

/** Loaded by who has a Redis: its 45 files are a twelfth of the CPU that a start takes. */
const ioredis = () => createRequire(import.meta.url)("ioredis") as typeof import("ioredis")

const isCluster = (redis: RedisClient): redis is Cluster => redis instanceof ioredis().Cluster

/** Milliseconds before the next try to connect. */
const retryStrategy = (times: number): number => Math.min(times * 50, MAX_RETRY_MS)

/**
 * A connection that isn't open yet, and that fails fast: nothing waits for Redis to come back, and nothing is sent
 * twice, because it would be counted twice.
 */
export function redisConnection(url: string): RedisClient {
  const redis = clientOf(url)
  redis.defineCommand("sluiceAdmit", { lua: admitScript })
  redis.defineCommand("sluiceBeat", { lua: beatScript, numberOfKeys: 1 })
  return redis
}

function clientOf(url: string): RedisClient {
  const { Cluster, Redis } = ioredis()
  const { kind, isTls, login, nodes, database, primaryName, sentinelLogin } = parseRedisAddress(url)
  const options = {
    ...login,
    ...(isTls ? { tls: {} } : {}),
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: CONNECT_TIMEOUT_MS,
  }
  if (kind === "cluster")
    return new Cluster(nodes, {
      lazyConnect: true,
      enableOfflineQueue: false,
      // What got no answer is not sent again, because it may have been counted.
      retryDelayOnFailover: 0,
      retryDelayOnClusterDown: 0,
      clusterRetryStrategy: retryStrategy,
      slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
      slotsRefreshInterval: SLOTS_REFRESH_MS,
      // A node is asked by the name that the cluster gives it: with TLS, its certificate has that name.
      ...(isTls ? { dnsLookup: (host, callback) => callback(null, host) } : {}),
      redisOptions: options,
    })
  if (kind === "server") return new Redis({ ...options, ...nodes[0], db: database, lazyConnect: true, retryStrategy })
  return new Redis({
    ...options,
    db: database,
    lazyConnect: true,
    retryStrategy,
    sentinels: nodes,
    name: primaryName,
    ...(sentinelLogin.username === undefined ? {} : { sentinelUsername: sentinelLogin.username }),
    ...(sentinelLogin.password === undefined ? {} : { sentinelPassword: sentinelLogin.password }),
    ...(isTls ? { enableTLSForSentinelMode: true, sentinelTLS: {} } : {}),
    sentinelRetryStrategy: retryStrategy,
    sentinelCommandTimeout: CONNECT_TIMEOUT_MS,
    // A primary that was cut off and lives on as a replica closes no connection.
    failoverDetector: true,
    reconnectOnError: (error: Error) => error.message.startsWith("READONLY"),
  })
}

/** The servers that hold the limits now: one, or each primary of a cluster. */
export const primariesOf = (redis: RedisClient): Redis[] => (isCluster(redis) ? redis.nodes("master") : [redis])

export interface SharedLog {
  /** Counts a request against all of `counts` (one at least), or against none when one of them is full; rejects when Redis fails. */
  admit(counts: readonly Count[]): Promise<Verdict>
}

interface Waiting {
  counts: readonly Count[]
  resolve: (verdict: Verdict) => void
  reject: (error: Error) => void
}

/**
 * The log in Redis, over one connection. One call runs at a time, and requests that arrive meanwhile go together in the
 * next: a lone request waits for nobody, and a hundred cost little more than one. On a cluster each request is a call of
 * its own. `clock` replaces Redis' own.
 */
export function sharedLog(redis: RedisClient, options: { windowMs: number; clock?: () => number }): SharedLog {
  const { windowMs, clock } = options
  // The keys of one request are on one node of a cluster, and those of several are not.
  const oneByOne = isCluster(redis)
  let waiting: Waiting[] = []
  let busy = false
  return {
    admit: counts =>
      new Promise((resolve, reject) => {
        if (oneByOne) return void answer([{ counts, resolve, reject }])
        waiting.push({ counts, resolve, reject })
        if (!busy) void send()
      }),
  }

  async function send(): Promise<void> {
    busy = true
    while (waiting.length > 0) {
      const batch = waiting.slice(0, MAX_BATCH)
      waiting = waiting.slice(MAX_BATCH)
      await answer(batch)
    }
    busy = false
  }

  async function answer(batch: readonly Waiting[]): Promise<void> {
    try {
      const answers = await ask(batch)
      for (const [i, { resolve }] of batch.entries()) {
        const at = i * ANSWER_LENGTH
        const [waitMs = 0, limit = 0, remaining = 0, resetMs = 0] = answers.slice(at, at + ANSWER_LENGTH)
        resolve({ admitted: waitMs === 0, waitMs, limit, remaining, resetMs })
      }
    } catch (error) {
      for (const { reject } of batch) reject(error as Error)
    }
  }

  function ask(batch: readonly Waiting[]): Promise<number[]> {
    const keys: string[] = []
    const numbers: (number | string)[] = [windowMs, clock?.() ?? ""]
    for (const { counts } of batch) {
      numbers.push(counts.length)
      for (const { key, limit } of counts) {
        keys.push(key)
        numbers.push(limit)
      }
    }
    return redis.sluiceAdmit(keys.length, ...keys, ...numbers)
  }
}
