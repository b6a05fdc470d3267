/**
 * The limits as the API uses them: shared through Redis where it is configured, with this process's own log as the
 * fallback; else that log alone.
 */
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import type { Logger } from "pino"
import { limitsAlone, limitsInstances } from "../metrics.ts"
import { WINDOW_MS } from "./buckets.ts"
import { primariesOf, type RedisClient, redisConnection, sharedLog } from "./shared-log.ts"
import { type Count, type MemoryLog, memoryLog, monotonicMs, type Verdict } from "./sliding-log.ts"

export interface Limits {
  /**
   * Counts a request against all of `counts` (one at least), or against none when one of them is full; never rejects, and answers at
   * once where this process decides alone.
   */
  admit(counts: readonly Count[]): Verdict | Promise<Verdict>
  close(): Promise<void>
}

/** 15 MB when each was admitted once, 36 MB when 30 times (measured). */
const MAX_KEYS = 100_000
/** A start waits no longer for Redis. */
const START_MS = 2_000
/** A slower answer counts as none. */
const PATIENCE_MS = 100
/** How long this process decides alone before it asks again; also the time between heartbeats. */
const BEAT_MS = 5_000
/** An instance counts until it has missed three beats. */
const LIFE_MS = 15_000
const INSTANCES_KEY = "sluice:limit:instances"

/** The limits of one process. */
export function processLimits(log: MemoryLog = memoryLog({ windowMs: WINDOW_MS, maxKeys: MAX_KEYS })): Limits {
  return { admit: counts => log.admit(counts), close: async () => undefined }
}

/**
 * The limits by the settings; a Redis that can't be reached delays the start by at most two seconds. An answer that takes
 * longer than `patienceMs` counts as none.
 */
export async function openLimits(
  { redisUrl }: { redisUrl: string | undefined },
  log: Logger,
  patienceMs = PATIENCE_MS,
): Promise<Limits> {
  if (redisUrl === undefined) {
    log.info(
      "REDIS_URL is not set: requests are counted in the memory of this process, so only one process may serve the API",
    )
    return processLimits()
  }
  const redis = redisConnection(redisUrl)
  // The cause is logged once, when the limits stop being shared.
  let refusal: Error | undefined
  redis.on("error", (error: Error) => {
    refusal = error
  })
  redis.on("ready", () => {
    refusal = undefined
  })
  // Where no sentinel answers, it tries until one does.
  await within(START_MS, connected(redis)).catch(() => undefined)
  const inTime: InTime = work => within(patienceMs, work)
  return await limitsOver(redis, log, inTime, () => refusal)
}

/** Connects. A cluster is connected before its nodes are, and refuses what is sent to them meanwhile. */
async function connected(redis: RedisClient): Promise<void> {
  await redis.connect()
  const connecting = primariesOf(redis).filter(({ status }) => status !== "ready")
  await Promise.all(connecting.map(node => (node.status === "wait" ? node.connect() : once(node, "ready"))))
}

/**
 * Redis decides, and what it admits is also recorded in this process's log. When Redis fails or is slow, that log
 * decides, with this instance's share of each limit, until a heartbeat gets through. Our own admissions always count: a
 * Redis that has lost its memory does not make this process admit more than the limit.
 */
async function limitsOver(redis: RedisClient, log: Logger, inTime: InTime, cause: Cause): Promise<Limits> {
  const own = memoryLog({ windowMs: WINDOW_MS, maxKeys: MAX_KEYS })
  const shared = sharedLog(redis)
  const member = membership(redis, inTime)
  let alone = false
  let sharedSinceMs = monotonicMs()
  let closed = false
  let timer: NodeJS.Timeout | undefined
  await beat()

  return {
    admit: async counts => {
      if (!alone) {
        // Recorded at the time before Redis was asked and read at the time after: this log never refuses what Redis
        // rightly admits.
        const askedMs = monotonicMs()
        const verdict = await inTime(shared.admit(counts)).catch(goAlone)
        if (verdict) {
          const mine = verdict.admitted ? own.admit(counts, monotonicMs(), askedMs) : verdict
          return mine.admitted ? verdict : mine
        }
      }
      return own.admit(counts.map(({ key, limit }) => ({ key, limit: Math.ceil(limit / member.instances()) })))
    },
    close: async () => {
      closed = true
      clearTimeout(timer)
      await member.leave().catch(() => undefined)
      redis.disconnect()
    },
  }

  function goAlone(error: Error): void {
    if (alone || closed) return
    alone = true
    limitsAlone.set(1)
    // A call on a connection that Redis refused (a wrong password) reports only that it can't write to it.
    log.warn(
      { err: cause() ?? error, instances: member.instances() },
      "Redis fails: each instance enforces its share of the limits by itself",
    )
    beatLater()
  }

  async function beat(): Promise<void> {
    try {
      await member.beat(() => alone || monotonicMs() - sharedSinceMs <= LIFE_MS)
      if (alone) {
        alone = false
        sharedSinceMs = monotonicMs()
        limitsAlone.set(0)
        log.info("Redis is back: limits are shared again")
      }
    } catch (error) {
      goAlone(error as Error)
      // Otherwise a connection to a vanished host would be tried for a quarter of an hour.
      if (error instanceof NoAnswer && !closed) redis.disconnect(true)
    }
    beatLater()
  }

  function beatLater(): void {
    clearTimeout(timer)
    if (!closed) timer = setTimeout(() => void beat(), BEAT_MS).unref()
  }
}

/** This process among the instances that share the limits. */
function membership(redis: RedisClient, inTime: InTime) {
  const id = randomUUID()
  let instances = 1
  return {
    /** How many there are, as far as is known; at least 1. */
    instances: () => instances,
    /** Stays a member and counts the others; `isNew` says of a Redis that it does not know all instances yet. */
    beat: async (isNew: () => boolean) => {
      // Each primary of a cluster, as any of them may be the next one that is needed.
      const pings = primariesOf(redis).map(each => each.ping())
      const [counted] = await inTime(Promise.all([redis.sluiceBeat(INSTANCES_KEY, id, LIFE_MS), ...pings]))
      instances = isNew() ? Math.max(instances, counted) : counted
      limitsInstances.set(instances)
    },
    leave: () => inTime(redis.zrem(INSTANCES_KEY, id)),
  }
}

/** Why there is no connection now. */
type Cause = () => Error | undefined

/** The result of a call, or {@link NoAnswer}. */
type InTime = <T>(work: Promise<T>) => Promise<T>

class NoAnswer extends Error {}

/**
 * The result of `work`, or {@link NoAnswer}. A process that was itself busy for this long reads what has arrived before
 * it gives up.
 */
function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const late = () => new NoAnswer(`no answer within ${ms} ms`)
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => setImmediate(() => reject(late())), ms)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
