/**
 * The sliding log of many processes: the same steps as in `sliding-log.ts`, in Lua on lists in Redis, newest first.
 * Redis' own clock counts; it is never taken below a key's newest entry.
 */
import { Redis, type Result } from "ioredis"
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

/**
 * A connection that isn't open yet, and that fails fast: nothing waits for Redis to come back, and nothing is sent
 * twice, because it would be counted twice.
 */
export function redisConnection(url: string): Redis {
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    connectTimeout: CONNECT_TIMEOUT_MS,
    retryStrategy: times => Math.min(times * 50, MAX_RETRY_MS),
  })
  redis.defineCommand("sluiceAdmit", { lua: admitScript })
  redis.defineCommand("sluiceBeat", { lua: beatScript, numberOfKeys: 1 })
  return redis
}

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
 * next: a lone request waits for nobody, and a hundred cost little more than one. `clock` replaces Redis' own.
 */
export function sharedLog(redis: Redis, options: { windowMs: number; clock?: () => number }): SharedLog {
  const { windowMs, clock } = options
  let waiting: Waiting[] = []
  let busy = false
  return {
    admit: counts =>
      new Promise((resolve, reject) => {
        waiting.push({ counts, resolve, reject })
        if (!busy) void send()
      }),
  }

  async function send(): Promise<void> {
    busy = true
    while (waiting.length > 0) {
      const batch = waiting.slice(0, MAX_BATCH)
      waiting = waiting.slice(MAX_BATCH)
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
    busy = false
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
