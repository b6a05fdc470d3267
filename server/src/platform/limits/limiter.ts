/**
 * The limits as the API uses them. With Redis, the limits are shared through it, with this process's own log as the
 * fallback. Without Redis, only that log counts.
 */
import { randomUUID } from "node:crypto"
import { once } from "node:events"
import type { Logger } from "pino"
import { limitsAlone, limitsInstances } from "../metrics.ts"
import { WINDOW_MS } from "./buckets.ts"
import { databaseFault } from "./redis-database.ts"
import { primariesOf, type RedisClient, redisConnection, sharedLog } from "./shared-log.ts"
import { type Count, type MemoryLog, memoryLog, monotonicMs, type Verdict } from "./sliding-log.ts"

export interface Limits {
  /**
   * Counts a request against all of `counts` (at least one), or against none if one of them is full. Never rejects, and
   * returns no promise if this process decides alone.
   */
  admit(counts: readonly Count[]): Verdict | Promise<Verdict>
  /** Why this process enforces its own share, as the sentence of an alarm; absent if Redis is not set. */
  trouble?(): string | undefined
  close(): Promise<void>
}

/** The maximum number of keys: 15 MB if each was admitted once, 36 MB if each was admitted 30 times (measured). */
const MAX_KEYS = 100_000
/** The longest time that a start waits for Redis. */
const START_MS = 2_000
/** A slower answer counts as no answer. */
const PATIENCE_MS = 100
/** How long this process decides alone before it asks Redis again; also the time between heartbeats. */
const BEAT_MS = 5_000
/** An instance is counted until it has missed three heartbeats. */
const LIFE_MS = 15_000
const ALONE = "Redis can't be used, so each process enforces its share of the rate limits on its own"

/** The limits of a process without Redis. */
export function processLimits(log: MemoryLog = memoryLog({ windowMs: WINDOW_MS, maxKeys: MAX_KEYS })): Limits {
  return { admit: counts => log.admit(counts), close: async () => undefined }
}

/**
 * Opens the rate limits according to the settings. `installation` is the id of the installation that the limits belong
 * to, because several installations may use one Redis database. An unreachable Redis delays the start by at most two
 * seconds. An answer that takes longer than `patienceMs` counts as no answer.
 */
export async function openLimits(
  { redisUrl, installation }: { redisUrl: string | undefined; installation: string },
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
  // Logged once, when the limits stop being shared.
  let refusal: Error | undefined
  redis.on("error", (error: Error) => {
    refusal = error
  })
  redis.on("ready", () => {
    refusal = undefined
  })
  // If no sentinel answers, the client keeps trying until one does.
  await within(START_MS, connected(redis)).catch(() => undefined)
  const fault = await within(START_MS, databaseFault(redis, redisUrl)).catch(() => undefined)
  if (fault !== undefined) {
    redis.disconnect()
    throw new Error(`${fault.message}: ${fault.todo}.`)
  }
  const inTime: InTime = work => within(patienceMs, work)
  return await limitsOver({ redis, prefix: `sluice:${installation}:` }, log, inTime, () => refusal)
}

/** Connects. A cluster connects before its nodes do, and refuses commands until then. */
async function connected(redis: RedisClient): Promise<void> {
  await redis.connect()
  const connecting = primariesOf(redis).filter(({ status }) => status !== "ready")
  await Promise.all(connecting.map(node => (node.status === "wait" ? node.connect() : once(node, "ready"))))
}

/**
 * Redis decides, and its admissions are also recorded in this process's log. When Redis fails or is slow, that log
 * decides, with this instance's share of each limit, until a heartbeat succeeds. The process's own admissions always
 * count: even if Redis loses its memory, this process admits no more than the limit.
 */
async function limitsOver({ redis, prefix }: Shared, log: Logger, inTime: InTime, cause: Cause): Promise<Limits> {
  const own = memoryLog({ windowMs: WINDOW_MS, maxKeys: MAX_KEYS })
  const shared = sharedLog(redis, `${prefix}log:`)
  const member = membership(redis, `${prefix}instances`, inTime)
  let alone = false
  let sharedSinceMs = monotonicMs()
  let closed = false
  let timer: NodeJS.Timeout | undefined
  await beat()

  return {
    admit: async counts => {
      if (!alone) {
        // The admission is recorded at the time before Redis was asked, and the log is read at the time after that. So
        // this log never refuses what Redis correctly admits.
        const askedMs = monotonicMs()
        const verdict = await inTime(shared.admit(counts)).catch(goAlone)
        if (verdict) {
          const mine = verdict.admitted ? own.admit(counts, monotonicMs(), askedMs) : verdict
          return mine.admitted ? verdict : mine
        }
      }
      return own.admit(counts.map(({ key, limit }) => ({ key, limit: Math.ceil(limit / member.instances()) })))
    },
    trouble: () => (alone ? ALONE : undefined),
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
    // If Redis refused the connection (a wrong password), a call only reports that the connection can't be written to.
    log.warn(
      { err: cause() ?? error, instances: member.instances() },
      "Redis fails: each instance enforces its share of the limits on its own",
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
      // Otherwise a connection to a vanished host would be retried for a quarter of an hour.
      if (error instanceof NoAnswer && !closed) redis.disconnect(true)
    }
    beatLater()
  }

  function beatLater(): void {
    clearTimeout(timer)
    if (!closed) timer = setTimeout(() => void beat(), BEAT_MS).unref()
  }
}

/** This process as one of the instances that share the limits. */
function membership(redis: RedisClient, key: string, inTime: InTime) {
  const id = randomUUID()
  let instances = 1
  return {
    /** The known number of instances; at least 1. */
    instances: () => instances,
    /**
     * Renews this process's membership and counts the others. `isNew`: whether Redis may not know all instances yet.
     */
    beat: async (isNew: () => boolean) => {
      // Pings each primary of a cluster, because any of them may be needed next.
      const pings = primariesOf(redis).map(each => each.ping())
      const [counted] = await inTime(Promise.all([redis.sluiceBeat(key, id, LIFE_MS), ...pings]))
      instances = isNew() ? Math.max(instances, counted) : counted
      limitsInstances.set(instances)
    },
    leave: () => inTime(redis.zrem(key, id)),
  }
}

/** A connection, and the prefix of all keys of this installation. */
interface Shared {
  redis: RedisClient
  prefix: string
}

/** Returns why there is no connection now. */
type Cause = () => Error | undefined

/** Awaits the result of a call; throws {@link NoAnswer} if it is late. */
type InTime = <T>(work: Promise<T>) => Promise<T>

class NoAnswer extends Error {}

/**
 * The result of `work`. Rejects with {@link NoAnswer} if the work takes too long. If the process itself was busy for
 * that long, it first reads what has arrived.
 */
function within<T>(ms: number, work: Promise<T>): Promise<T> {
  const late = () => new NoAnswer(`no answer within ${ms} ms`)
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => setImmediate(() => reject(late())), ms)
    work.then(resolve, reject).finally(() => clearTimeout(timer))
  })
}
