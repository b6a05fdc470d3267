/** `/healthz`: the process answers. `/readyz`: it can do its work. `/metrics`: for whoever holds the token. */
import { createHash, timingSafeEqual } from "node:crypto"
import { Type } from "typebox"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { registry } from "../metrics.ts"
import type { Server } from "./server.ts"

/** A network that was not looked at for so many intervals is in trouble. */
const MISSED_ROUNDS = 5
/** How long an answer of the database serves all who ask. */
const SHARED_MS = 1_000
/** Probes give up after a few seconds, so the answer comes before that, whatever the database does. */
const DEADLINE_MS = 2_000

/**
 * `alarmsInWords` asks for what is wrong and no reason to send nobody here. From `draining` on `/readyz` says that the process
 * stops.
 */
export function healthRoutes(
  app: Server,
  ctx: Context,
  alarmsInWords: () => Promise<string[]>,
  draining: AbortSignal = ctx.signal,
): void {
  const troubles = troubleshooter(ctx, alarmsInWords, draining)
  app.get(
    "/healthz",
    {
      schema: {
        operationId: "health",
        summary: "Whether the process answers",
        tags: ["operation"],
        response: { 200: Type.Object({ status: Type.String() }) },
      },
    },
    async () => ({
      status: "ok",
    }),
  )

  app.get(
    "/readyz",
    {
      schema: {
        operationId: "readiness",
        summary: "Whether the database and the networks are in reach",
        tags: ["operation"],
        description:
          "Trouble with payouts or the identity provider alone is no reason to send nobody here, as money still arrives: it is told in `alarms`. A process that was told to stop answers 503 while it serves on.",
        response: {
          200: Type.Object({
            status: Type.String(),
            alarms: Type.Array(Type.String(), { description: "What a person should look at, in words" }),
          }),
        },
      },
      config: { errors: ["NOT_READY"] },
    },
    async () => {
      const { faults, alarms } = await troubles()
      if (faults.length > 0) throw new ApiError("NOT_READY", undefined, `Not ready: ${faults.join("; ")}.`)
      return { status: "ready", alarms }
    },
  )

  const token = ctx.settings.metricsToken
  if (token !== undefined)
    app.get(
      "/metrics",
      {
        schema: {
          operationId: "metrics",
          summary: "Prometheus metrics",
          tags: ["operation"],
          response: { 200: { content: { "text/plain": { schema: Type.String() } } } },
        },
        config: { errors: ["UNAUTHORIZED"] },
      },
      async (request, reply) => {
        if (!sameText(request.headers.authorization ?? "", `Bearer ${token}`)) throw new ApiError("UNAUTHORIZED")
        reply.type(registry.contentType)
        return await registry.metrics()
      },
    )
}

interface Troubles {
  /** What keeps the service from its work. */
  faults: string[]
  /** What keeps only payouts from going on. */
  alarms: string[]
}

/**
 * How things are. Anyone may ask, without a limit, so the database is asked once a second at most, and not again while it
 * owes an answer.
 */
function troubleshooter(
  ctx: Context,
  alarmsInWords: () => Promise<string[]>,
  draining: AbortSignal,
): () => Promise<Troubles> {
  const ask = async () => {
    const [cursors, alarms] = await Promise.all([
      ctx.db.selectFrom("cursors").select(["chain_id", "looked_at"]).execute(),
      alarmsInWords(),
    ])
    return { cursors, alarms }
  }
  let asked: { at: number; isOpen: boolean; answer: ReturnType<typeof ask> } | undefined
  const answerOf = (now: number) => {
    // Also anew when the clock was set back.
    if (asked && (asked.isOpen || Math.abs(now - asked.at) < SHARED_MS)) return asked.answer
    const fresh = { at: now, isOpen: true, answer: ask() }
    const close = () => {
      fresh.isOpen = false
    }
    fresh.answer.then(close, close)
    asked = fresh
    return fresh.answer
  }
  return async () => {
    if (draining.aborted) return { faults: ["it is stopping"], alarms: [] }
    const now = ctx.now().getTime()
    const answer = await inTime(answerOf(now)).catch(() => "the database can't be reached" as const)
    if (typeof answer === "string") return { faults: [answer], alarms: [] }
    const { cursors, alarms } = answer
    const lateMs = MISSED_ROUNDS * Math.max(ctx.settings.verifyIntervalMs, 5_000)
    const late = ctx.chain.networks.filter(network => {
      const lookedAt = cursors.find(cursor => cursor.chain_id === network.chainId)?.looked_at
      return !lookedAt || now - lookedAt.getTime() > lateMs
    })
    return { faults: late.map(network => `${network.name} has not been looked at lately`), alarms }
  }
}

/** What the promise gives, or after the deadline a sentence. */
async function inTime<T>(promise: Promise<T>): Promise<T | "the database does not answer"> {
  const deadline = Promise.withResolvers<"the database does not answer">()
  const timer = setTimeout(() => deadline.resolve("the database does not answer"), DEADLINE_MS)
  return await Promise.race([promise, deadline.promise]).finally(() => clearTimeout(timer))
}

/** Constant in time; the hashes make the lengths equal. */
function sameText(a: string, b: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
