/**
 * The sliding log for many processes: the same steps as in `sliding-log.ts`, in Lua on lists in Redis, newest first.
 * Redis' own clock counts. For a list, the clock's time is never taken to be earlier than the newest entry, unless that
 * entry is more than a window ahead.
 */
import { hash } from "node:crypto"
import { createRequire } from "node:module"
import type { Cluster, Redis, Result } from "ioredis"
import { WINDOW_MS } from "./buckets.ts"
import { parseRedisAddress } from "./redis-address.ts"
import type { Count, Verdict } from "./sliding-log.ts"

declare module "ioredis" {
  interface RedisCommander<Context> {
    sluiceBeat(key: string, id: string, lifeMs: number): Result<number, Context>
  }
}

/**
 * How much longer a list lives than needed. The list then gets a new expiry only once in this time, instead of at each
 * admission.
 */
const SLACK_MS = WINDOW_MS / 4

/**
 * KEYS: the lists. ARGV: a limit for each list; then the time, or an empty text for Redis' clock, and the number of
 * keys of each request. For one request by Redis' clock both are omitted. Returns three numbers of eight bytes for each
 * request. First, the limit of the bucket that is closest to its limit. Second, what remains of that limit, or -1 if
 * the request is refused. Third, the milliseconds until that bucket's oldest admission leaves the window.
 *
 * An entry consists of its time, the oldest time in the list and the list's length, both including this entry. So for
 * the usual request, reading the newest entry is enough.
 *
 * If Redis' clock was set back, a list's newest entry may be more than a window ahead. All times in the list are then
 * set to the time of this request, and the list is rewritten: 12,000 entries in 5 ms.
 */
const admitScript = `
local call, pack, unpack, spread = redis.call, struct.pack, struct.unpack, unpack
local keys, limits, window, entry = KEYS, ARGV, ${WINDOW_MS}, '<I6I6I4'
local clock = tonumber(ARGV[#keys + 1] or '')
if not clock then
  local time = call('TIME')
  clock = time[1] * 1000 + math.floor(time[2] / 1000)
end
-- Makes all entries of a list as of now.
local function renew(key, size)
  call('UNLINK', key)
  for pushed = 0, size - 1, 1000 do
    local entries = {}
    for n = pushed + 1, math.min(pushed + 1000, size) do entries[n - pushed] = pack(entry, clock, clock, n) end
    call('LPUSH', key, spread(entries))
  end
  call('PEXPIRE', key, '${WINDOW_MS + SLACK_MS}')
end
-- Drops the entries up to this time, of which there is one at least; returns how many stay, and the oldest of them.
local function trim(key, horizon, newest, size)
  if newest <= horizon then
    call('UNLINK', key)
    return 0
  end
  -- Places from the end: of an entry that goes, and of one that stays.
  local goes, stays, left = 1, size, newest
  while stays - goes > 1 do
    local place = math.min(goes * 2, math.floor((goes + stays) / 2))
    local time = unpack(entry, call('LINDEX', key, -place))
    if time <= horizon then goes = place else stays, left = place, time end
  end
  call('LTRIM', key, 0, -goes - 1)
  return size - goes, left
end
local heads, answers, last = {false, false}, {}, 0
while last < #keys do
  local first = last + 1
  last = last + (ARGV[#keys + #answers + 2] or #keys)
  local blocking, full = 0, nil
  for i = first, last do
    local head = call('LINDEX', keys[i], '0')
    heads[i] = head
    if head then
      local limit, newest, oldest, size = limits[i] + 0, unpack(entry, head)
      if newest > clock + window then
        renew(keys[i], size)
        newest, oldest = clock, clock
        heads[i] = pack(entry, clock, clock, size)
      end
      if size >= limit then
        local time = size == limit and oldest or unpack(entry, call('LINDEX', keys[i], limit - 1))
        local now = newest > clock and newest or clock
        if time + window > now and (not full or time > blocking) then blocking, full = time, limit end
      end
    end
  end
  local remaining, reset = -1, blocking + window - clock
  if not full then
    for i = first, last do
      local key, now, newest, oldest, size = keys[i], clock, 0, clock, 0
      if heads[i] then
        newest, oldest, size = unpack(entry, heads[i])
        if newest > clock then now = newest end
        if oldest <= now - window then
          size, oldest = trim(key, now - window, newest, size)
          oldest = oldest or now
        end
      end
      call('LPUSH', key, pack(entry, now, oldest, size + 1))
      if now > clock then
        call('PEXPIRE', key, now - clock + ${WINDOW_MS + SLACK_MS})
      elseif newest < now - now % ${SLACK_MS} then
        call('PEXPIRE', key, '${WINDOW_MS + SLACK_MS}')
      end
      local left = limits[i] - size - 1
      if i == first or left < remaining then full, remaining, reset = limits[i], left, oldest + window - clock end
    end
  end
  local answer = pack('<ddd', full, remaining, reset)
  if first == 1 and last == #keys then return answer end
  answers[#answers + 1] = answer
end
return table.concat(answers)`
/** The name of the script in Redis: its SHA-1. */
const admitSha = hash("sha1", admitScript)

/** KEYS: the sorted set of instances. ARGV: an instance's id, and for how many milliseconds a heartbeat is valid. */
const beatScript = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
-- Redis' clock was ahead when these were written: they would count until it gets there.
redis.call('ZREMRANGEBYSCORE', KEYS[1], now + ARGV[2], '+inf')
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('ZCARD', KEYS[1])`

const CONNECT_TIMEOUT_MS = 2_000
const MAX_RETRY_MS = 1_000
/** A connection on which no answer arrives for this long after its creation is closed. */
const ANSWER_TIMEOUT_MS = 5_000
/** The maximum number of requests in one call. */
const MAX_BATCH = 100
/** Three numbers of eight bytes. */
const ANSWER_BYTES = 24

/** How often a client of a cluster asks where each slot is. A node whose slot was moved reports that immediately. */
const SLOTS_REFRESH_MS = 5_000

export type RedisClient = Redis | Cluster

/** Loaded only by a process that uses Redis: its 45 files take a twelfth of the CPU of a start. */
const ioredis = () => createRequire(import.meta.url)("ioredis") as typeof import("ioredis")

const isCluster = (redis: RedisClient): redis is Cluster => redis instanceof ioredis().Cluster

/** Milliseconds before the next attempt to connect. */
const retryStrategy = (times: number): number => Math.min(times * 50, MAX_RETRY_MS)

/**
 * Makes a connection that is not open yet and fails fast. No call waits for Redis to come back, and no entry is sent twice, because Redis would count the entry twice. A connection that is not ready after `answerMs` is replaced.
 */
export function redisConnection(url: string, answerMs = ANSWER_TIMEOUT_MS): RedisClient {
  const redis = clientOf(url)
  const watched = (each: Redis) => endUnanswered(each, answerMs)
  if (isCluster(redis)) redis.on("+node", watched)
  else watched(redis)
  redis.defineCommand("sluiceBeat", { lua: beatScript, numberOfKeys: 1 })
  return redis
}

/**
 * Ends a connection on which no answer arrives. A server that accepts connections while it hangs (stopped, or behind a
 * proxy) may never answer on this one, but may answer on later ones.
 */
function endUnanswered(redis: Redis, answerMs: number): void {
  redis.on("connect", () => {
    const timer = setTimeout(() => redis.disconnect(true), answerMs).unref()
    const settled = () => {
      clearTimeout(timer)
      redis.off("ready", settled).off("close", settled)
    }
    redis.on("ready", settled).on("close", settled)
  })
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
      // A request without an answer is not sent again, because it may have been counted.
      retryDelayOnFailover: 0,
      retryDelayOnClusterDown: 0,
      clusterRetryStrategy: retryStrategy,
      slotsRefreshTimeout: CONNECT_TIMEOUT_MS,
      slotsRefreshInterval: SLOTS_REFRESH_MS,
      // A node is reached by the name that the cluster gives it, because with TLS its certificate has that name.
      ...(isTls ? { dnsLookup: (host, callback) => callback(null, host) } : {}),
      redisOptions: options,
    })
  // The name may now lead to another server. A server that was cut off continues as a replica and closes no connection.
  const reconnectOnError = (error: Error) => error.message.startsWith("READONLY")
  if (kind === "server")
    return new Redis({ ...options, ...nodes[0], db: database, lazyConnect: true, retryStrategy, reconnectOnError })
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
    failoverDetector: true,
    reconnectOnError,
  })
}

/** The servers that hold the limits now: one, or every primary of a cluster. */
export const primariesOf = (redis: RedisClient): Redis[] => (isCluster(redis) ? redis.nodes("master") : [redis])

export interface SharedLog {
  /**
   * Counts a request against all of `counts` (at least one), or against none if one of them is full. Rejects if Redis
   * fails.
   */
  admit(counts: readonly Count[]): Promise<Verdict>
}

interface WaitingCount {
  counts: readonly Count[]
  resolve: (verdict: Verdict) => void
  reject: (error: Error) => void
}

/**
 * The log in Redis, over one connection. One call runs at a time, and requests that arrive meanwhile share the next
 * call. So a single request does not wait, and a hundred cost little more than one. On a cluster each request is a call
 * of its own. Each key starts with `prefix`. `clock` replaces Redis' own.
 */
export function sharedLog(redis: RedisClient, prefix: string, clock?: () => number): SharedLog {
  const { Command } = ioredis()
  // On a cluster the keys of one request are on one node, but the keys of several requests are not.
  const oneByOne = isCluster(redis)
  let waiting: WaitingCount[] = []
  let busy = false
  return {
    admit: counts =>
      new Promise((resolve, reject) => {
        const request = { counts, resolve, reject }
        if (busy) return void waiting.push(request)
        busy = !oneByOne
        ask([request])
      }),
  }

  /** Builds the command itself, because ioredis's other work for a script takes a tenth of the time of a check. */
  function ask(batch: readonly WaitingCount[], name: "eval" | "evalsha" = "evalsha"): void {
    const command = new Command(name, argumentsOf(name === "eval" ? admitScript : admitSha, prefix, batch, clock?.()))
    command.promise
      .then(answers => answer(batch, answers as Buffer))
      .catch((error: Error) => {
        // A Redis that has just started does not have the script, and has counted nothing.
        if (name === "evalsha" && error.message.startsWith("NOSCRIPT")) return ask(batch, "eval")
        for (const { reject } of batch) reject(error)
        next()
      })
    void redis.sendCommand(command)
  }

  function answer(batch: readonly WaitingCount[], answers: Buffer): void {
    for (let i = 0; i < batch.length; i++) batch[i]?.resolve(verdictAt(answers, i * ANSWER_BYTES))
    // Callers that ask again immediately join the waiting callers.
    queueMicrotask(next)
  }

  function next(): void {
    busy = waiting.length > 0
    if (!busy) return
    const batch = waiting.length > MAX_BATCH ? waiting.slice(0, MAX_BATCH) : waiting
    waiting = waiting.length > MAX_BATCH ? waiting.slice(MAX_BATCH) : []
    ask(batch)
  }
}

/** The arguments of a call: the script, the number of keys, the keys, and the script's own arguments. */
function argumentsOf(
  script: string,
  prefix: string,
  batch: readonly WaitingCount[],
  clock: number | undefined,
): string[] {
  const [sent, limits]: [string[], string[]] = [[script, ""], []]
  for (const { counts } of batch)
    for (const { key, limit } of counts) {
      sent.push(prefix + key)
      limits.push(`${limit}`)
    }
  sent[1] = `${limits.length}`
  for (const limit of limits) sent.push(limit)
  if (batch.length === 1 && clock === undefined) return sent
  sent.push(`${clock ?? ""}`)
  for (const { counts } of batch) sent.push(`${counts.length}`)
  return sent
}

function verdictAt(answers: Buffer, at: number): Verdict {
  const limit = answers.readDoubleLE(at)
  const remaining = answers.readDoubleLE(at + 8)
  const resetMs = answers.readDoubleLE(at + 16)
  return remaining < 0
    ? { admitted: false, waitMs: resetMs, limit, remaining: 0, resetMs }
    : { admitted: true, waitMs: 0, limit, remaining, resetMs }
}
