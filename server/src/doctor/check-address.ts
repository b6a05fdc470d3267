/** Checks what must be reachable beside the chain and the database: BASE_URL, the identity provider, and Redis. */
// I/O: makes requests, also before the service starts, when there is no context.
import { setTimeout as sleep } from "node:timers/promises"
import type { Settings } from "../config/settings.ts"
import { boundedText } from "../http/bounded-body.ts"
import { tokenIssuer } from "../identity/tokens.ts"
import { primariesOf, redisConnection } from "../limits/shared-log.ts"
import { type Finding, fine } from "./finding.ts"

const TIMEOUT_MS = 5_000
/** Of an answer of `/healthz`; a page of another program may be larger. */
const MOST_BYTES = 64 * 1024

const part = "address"

/** Whether BASE_URL leads to a running Sluice. */
export async function checkBaseUrl({ baseUrl }: Settings, signal: AbortSignal): Promise<Finding> {
  const bad = (message: string, todo: string): Finding => ({ part, check: "base_url", level: "alarm", message, todo })
  try {
    const response = await fetch(`${baseUrl}/healthz`, {
      redirect: "manual",
      // A kept connection may be closed by the other side just now, which would look like an outage.
      headers: { connection: "close" },
      signal: AbortSignal.any([signal, AbortSignal.timeout(TIMEOUT_MS)]),
    })
    const text = await boundedText(response, MOST_BYTES)
    if (response.ok && isHealth(text)) return fine(part, "base_url", "BASE_URL leads to a running Sluice")
    return bad(
      `BASE_URL answers with HTTP ${response.status}, and not as Sluice`,
      `${baseUrl}/healthz must reach this service: check the proxy and the path.`,
    )
  } catch (error) {
    return bad(
      `BASE_URL can't be reached: ${reasonOf(error)}`,
      `${baseUrl}/healthz must reach this service from here: start it, and check its DNS name, proxy and certificate.`,
    )
  }
}

function isHealth(text: string): boolean {
  try {
    return (JSON.parse(text) as { status?: unknown } | null)?.status === "ok"
  } catch {
    return false
  }
}

/** The code of the cause alone: a message may repeat an address. */
function reasonOf(error: unknown): string {
  if ((error as Error).name === "TimeoutError") return "no answer in five seconds"
  const { cause } = error as { cause?: { code?: unknown } }
  return typeof cause?.code === "string" ? cause.code : "no usable answer"
}

/** Whether the issuer of console tokens answers; nothing to ask where merchants sign in with wallets alone. */
export async function checkIssuer({ oidcIssuer, oidcAudience, baseUrl }: Settings): Promise<Finding[]> {
  if (oidcIssuer === "" || oidcIssuer === baseUrl)
    return [fine(part, "oidc_issuer", "merchants sign in with their wallets")]
  const issuer = tokenIssuer(oidcIssuer, oidcAudience)
  await issuer.check?.()
  const [trouble] = issuer.troubles?.() ?? []
  if (trouble === undefined) return [fine(part, "oidc_issuer", "the identity provider answers")]
  const todo = "Check OIDC_ISSUER, and that its /.well-known/openid-configuration can be reached from here."
  return [{ part, check: "oidc_issuer", level: "alarm", message: trouble, todo, isWatched: true }]
}

/** Where no sentinel answers, a connection is tried until one does. */
const late = async (): Promise<never> => {
  await sleep(TIMEOUT_MS, undefined, { ref: false })
  throw new Error("no answer")
}

/** Whether Redis answers, where it is set: on a cluster, each of its primaries. */
export async function checkRedis({ redisUrl }: Settings): Promise<Finding[]> {
  if (redisUrl === undefined) return []
  const redis = redisConnection(redisUrl)
  redis.on("error", () => {})
  try {
    await Promise.race([redis.connect(), late()])
    await Promise.all(primariesOf(redis).map(each => each.ping()))
    return [fine(part, "redis", "Redis answers")]
  } catch {
    const todo =
      "Check REDIS_URL, its password, and that Redis is running: until then each process enforces a part of the limits."
    return [{ part, check: "redis", level: "alarm", message: "Redis can't be reached", todo, isWatched: true }]
  } finally {
    redis.disconnect()
  }
}
