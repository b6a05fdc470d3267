/**
 * Checks whether the limits can be shared through Redis, by running the commands of the limits on separate keys. A
 * Redis that answers PING can still refuse all of them: a replica, a Redis that is full, or a user without the
 * rights.
 */
// I/O: makes requests, including before the service starts, when there is no context.
import { randomUUID } from "node:crypto"
import { setTimeout as sleep } from "node:timers/promises"
import type { Redis } from "ioredis"
import type { Settings } from "../../platform/config/settings.ts"
import { WINDOW_MS } from "../../platform/limits/buckets.ts"
import { parseRedisAddress } from "../../platform/limits/redis-address.ts"
import { databaseFault } from "../../platform/limits/redis-database.ts"
import { primariesOf, type RedisClient, redisConnection, sharedLog } from "../../platform/limits/shared-log.ts"
import { type Finding, fine, type Level } from "./finding.ts"

/** The rights that the Redis user needs, in the syntax of `ACL SETUSER`. */
export const REDIS_RIGHTS =
  "~sluice:* +evalsha +eval +time +lindex +lpush +ltrim +unlink +pexpire +zadd +zremrangebyscore +zcard +zrem +ping +info"

const TIMEOUT_MS = 5_000
/** A prefix for keys that no installation uses. */
const PREFIX = "sluice:doctor:"
const part = "address"
const check = "redis"
const finding = (level: Level, message: string, todo: string): Finding => ({
  part,
  check,
  level,
  message,
  todo,
  isWatched: true,
})

/** Checks whether the limits can be shared through Redis, if Redis is set. In a cluster, each primary is checked. */
export async function checkRedis({ redisUrl }: Settings): Promise<Finding[]> {
  if (redisUrl === undefined) return []
  const redis = redisConnection(redisUrl)
  let refusal: Error | undefined
  redis.on("error", (error: Error) => {
    refusal = error
  })
  try {
    return await Promise.race([examine(redis, redisUrl), late()])
  } catch (error) {
    // If Redis refused the connection, the call that failed reports only that it can't write.
    return [explained([error as Error, refusal].find(each => each?.name === "ReplyError") ?? (error as Error))]
  } finally {
    redis.disconnect()
  }
}

/** Rejects after a while, because the connection keeps trying until a sentinel answers. */
const late = async (): Promise<never> => {
  await sleep(TIMEOUT_MS, undefined, { ref: false })
  throw new Error("no answer")
}

async function examine(redis: RedisClient, url: string): Promise<Finding[]> {
  await redis.connect()
  const fault = await databaseFault(redis, url)
  if (fault) return [finding("fault", fault.message, `REDIS_URL: ${fault.todo}.`)]
  const primaries = primariesOf(redis)
  const infos = await Promise.all(primaries.map(each => each.info()))
  if (parseRedisAddress(url).kind === "server" && infos.some(info => /^cluster_enabled:1/m.test(info)))
    return [finding("alarm", "Redis is a Cluster", "REDIS_URL must be redis+cluster://HOST:PORT for a Cluster.")]
  for (const each of primaries) await useAsLimits(redis, each)
  const evicting = infos.flatMap(info => {
    const policy = /^maxmemory_policy:(\S+)/m.exec(info)?.[1]
    return /^maxmemory:[1-9]/m.test(info) && policy !== undefined && policy !== "noeviction" ? [policy] : []
  })
  if (evicting.length > 0)
    return [
      finding(
        "note",
        `Redis drops keys when it is full (${evicting[0]}): a caller whose list is dropped can use its full limit again in each process`,
        "Set maxmemory-policy noeviction in Redis: then each process enforces its share while Redis is full.",
      ),
    ]
  return [fine(part, check, "Redis answers, and processes can share the limits through it")]
}

/** Runs each command that the limits' scripts use on this primary, and leaves nothing there. */
async function useAsLimits(redis: RedisClient, primary: Redis): Promise<void> {
  const id = await idOn(primary)
  const instances = `${PREFIX}instances:{${id}}`
  const counts = [{ key: `{${id}}`, limit: 10 }]
  try {
    await primary.ping()
    await redis.sluiceBeat(instances, id, TIMEOUT_MS)
    await redis.zrem(instances, id)
    // Uses its own clock, so that one entry leaves the window while the other stays, and then all entries leave.
    for (const clock of [1, 1.5, 2.25]) await sharedLog(redis, PREFIX, () => clock * WINDOW_MS).admit(counts)
    await sharedLog(redis, PREFIX).admit(counts)
    // A Redis that already knows the scripts did not receive them again, so `eval` is tried too.
    await primary.eval("return 0", 0)
  } finally {
    await redis.unlink(`${PREFIX}{${id}}`).catch(() => undefined)
  }
}

/** Returns an id whose keys belong to this primary; other primaries of a cluster refuse those keys. */
async function idOn(primary: Redis): Promise<string> {
  for (;;) {
    const id = `doctor ${randomUUID()}`
    try {
      await primary.lindex(`${PREFIX}{${id}}`, 0)
      return id
    } catch (error) {
      if (!(error as Error).message.startsWith("MOVED ")) throw error
    }
  }
}

/** Explains a failure, and what the operator should do about it. */
function explained({ name, message }: Error): Finding {
  if (name !== "ReplyError")
    return finding(
      "alarm",
      "Redis can't be reached",
      "Check REDIS_URL, and that Redis is running. Until then each process enforces its share of the limits.",
    )
  const [, words, todo] = answers.find(([answer]) => answer.test(message)) ?? [
    undefined,
    "Redis refuses the commands that the limits need",
    "Until Redis accepts them, each process enforces its share of the limits.",
  ]
  return finding("alarm", words, `${todo} Redis answered: ${message}`)
}

const answers: [answer: RegExp, words: string, todo: string][] = [
  [/^(WRONGPASS|NOAUTH)/, "Redis refuses the login", "Check the user and the password of REDIS_URL."],
  [
    /^NOPERM|can't (run this command|access)/,
    "the user of REDIS_URL has too few rights in Redis",
    `Grant the missing rights: ACL SETUSER NAME ${REDIS_RIGHTS} (docs/operators/operations.md).`,
  ],
  [
    /READONLY/,
    "REDIS_URL leads to a replica, which accepts no writes",
    "Name the primary, the sentinels that know the primary, or the cluster's nodes.",
  ],
  [
    /OOM/,
    "Redis is full",
    "Give Redis more memory (maxmemory). Until then each process enforces its share of the limits.",
  ],
]
