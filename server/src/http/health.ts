/** `/healthz`: the process answers. `/readyz`: it can do its work. `/metrics`: for requests with the token. */
import { createHash, timingSafeEqual } from "node:crypto"
import { sql } from "kysely"
import { Type } from "typebox"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { registry } from "../metrics.ts"
import type { Server } from "./server.ts"

/** How long one answer of the database is shared by all callers. */
const SHARED_MS = 1_000
/** The deadline of each of the two questions to the database: probes give up after a few seconds. */
const DEADLINE_MS = 1_000
/** How long the last result is repeated while tables are locked but the database answers. */
const MOST_LOCKED_MS = 60_000

/**
 * Adds the routes. `troublesNow` returns the current problems. Once `draining` is aborted, `/readyz` says that the
 * process is stopping.
 */
export function healthRoutes(
  app: Server,
  ctx: Context,
  troublesNow: () => Promise<Troubles>,
  draining: AbortSignal = ctx.signal,
): void {
  const troubles = troubleshooter(ctx, troublesNow, draining)
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
        summary: "Whether the database and the networks can be reached",
        tags: ["operation"],
        description:
          "Problems with payouts or the identity provider alone do not make the service unready, because money still arrives: they are listed in `alarms`. A process that is stopping answers 503 while it finishes its requests. So does a process whose scan is far behind the chain and not catching up, because new payments are not found.",
        response: {
          200: Type.Object({
            status: Type.String(),
            alarms: Type.Array(Type.String(), { description: "What needs a person's attention, as sentences" }),
          }),
        },
      },
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

export interface Troubles {
  /** Problems that prevent the service from working. */
  faults: string[]
  /** Problems that need a person, while payments are still found. */
  alarms: string[]
}

/**
 * Returns a function that reads the current state. Anyone may ask, without a limit. So the database is queried at most
 * once a second, and not while an earlier query is still open. While a migration locks a table, the last state is
 * repeated: requests that do not need the table are served, and the others wait, so a load balancer should not take out
 * all processes.
 */
function troubleshooter(
  ctx: Context,
  troublesNow: () => Promise<Troubles>,
  draining: AbortSignal,
): () => Promise<Troubles> {
  let asked: { at: number; isOpen: boolean; answer: Promise<Troubles> } | undefined
  let last: { at: number; troubles: Troubles } | undefined
  const answerOf = (now: number) => {
    // Also queried again when the clock was set back.
    if (asked && (asked.isOpen || Math.abs(now - asked.at) < SHARED_MS)) return asked.answer
    const fresh = { at: now, isOpen: true, answer: troublesNow() }
    const close = () => {
      fresh.isOpen = false
    }
    fresh.answer.then(close, close)
    asked = fresh
    return fresh.answer
  }
  return async () => {
    if (draining.aborted) return { faults: ["the process is stopping"], alarms: [] }
    const troubles = await inTime(answerOf(ctx.now().getTime()))
    if (typeof troubles !== "string") {
      last = { at: performance.now(), troubles }
      return troubles
    }
    const isLocked = typeof (await inTime(sql`select 1`.execute(ctx.db))) !== "string"
    if (isLocked && last && performance.now() - last.at < MOST_LOCKED_MS) return last.troubles
    return { faults: [troubles], alarms: [] }
  }
}

type Fault = "the database does not answer" | "the database can't be reached"

/** The result of the promise, or a clause that says why there is none. */
async function inTime<T>(promise: Promise<T>): Promise<T | Fault> {
  const deadline = Promise.withResolvers<Fault>()
  const timer = setTimeout(() => deadline.resolve("the database does not answer"), DEADLINE_MS)
  const reached = promise.catch((): Fault => "the database can't be reached")
  return await Promise.race([reached, deadline.promise]).finally(() => clearTimeout(timer))
}

/** Compares in constant time; hashing makes the lengths equal. */
function sameText(a: string, b: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
