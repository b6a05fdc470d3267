/**
 * `/healthz`: the process answers. `/readyz`: requests may be sent to the process. `/metrics`: for requests with the
 * token.
 *
 * A process is ready while the database answers it, its machine's clock is right and it is not stopping. With the
 * database it can serve status, access and pages. A stopped worker, missing endpoints and a full disk affect every
 * process. If such troubles made processes unready, a load balancer would take all of them out of rotation, with
 * everything that they still serve.
 */
import { createHash, timingSafeEqual } from "node:crypto"
import { sql } from "kysely"
import { Type } from "typebox"
import type { Context } from "../context.ts"
import { TRY_WRITE, UNWRITABLE, whyUnwritable } from "../db/try-write.ts"
import { ApiError } from "../errors.ts"
import { registry } from "../metrics.ts"
import type { Server } from "./server.ts"

/** How long all callers share one answer of the database. */
const SHARED_MS = 1_000
/** The deadline of both queries to the database, which run together: probes give up after a few seconds. */
const DEADLINE_MS = 1_000
/** The time between two test writes after a failed one, and the time after which a test write counts as late. */
const WRITTEN_MS = 10_000
const UNWRITTEN_MS = 1_000
const WRITE_DEADLINE_MS = 5_000
/** The alarm that replaces alarms that can't be read, for example because a migration has locked their tables. */
const UNREAD = "the database did not say in time what else needs attention"

/**
 * Adds the routes. `alarmsNow` returns what needs a person's attention. Once `draining` is aborted, `/readyz` reports
 * that the process is stopping.
 */
export function healthRoutes(
  app: Server,
  ctx: Context,
  alarmsNow: () => Promise<string[]>,
  draining: AbortSignal = ctx.signal,
): void {
  const stateNow = stateReader(ctx, alarmsNow, draining)
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
        summary: "Whether requests may be sent to this process",
        tags: ["operation"],
        description:
          "For load balancers. The process is ready while its database answers and its clock is right. A stopping process answers 503 while it finishes its requests. `alarms` lists everything else that needs a person's attention, such as a network that no worker scans or a full database disk. Alarms make no process unready, because it still serves status, access and pages.",
        response: {
          200: Type.Object({
            status: Type.String(),
            alarms: Type.Array(Type.String(), { description: "What needs a person's attention, as sentences" }),
          }),
        },
      },
    },
    async () => {
      const { fault, alarms } = await stateNow()
      if (fault !== undefined) throw new ApiError("NOT_READY", undefined, `Not ready: ${fault}.`)
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

interface State {
  /** Why this process should get no requests, as a clause. */
  fault?: string
  /** What needs a person's attention, as sentences. */
  alarms: string[]
}

/** Returns a function that reads the current state. */
function stateReader(ctx: Context, alarmsNow: () => Promise<string[]>, draining: AbortSignal): () => Promise<State> {
  const databaseNow = shared(ctx, () => sql`select 1`.execute(ctx.db))
  const sharedAlarms = shared(ctx, alarmsNow)
  const writesNow = writeReader(ctx)
  let last: string[] = []
  return async () => {
    if (draining.aborted) return { fault: "the process is stopping", alarms: [] }
    const clockTrouble = ctx.clock?.trouble()
    if (clockTrouble !== undefined) return { fault: clockTrouble, alarms: [] }
    const [reached, alarms, unwritable] = await Promise.all([
      inTime(databaseNow()),
      inTime(sharedAlarms()),
      writesNow(),
    ])
    if (typeof reached === "string") return { fault: reached, alarms: [] }
    const first = unwritable === undefined ? [] : [unwritable]
    if (typeof alarms === "string") return { alarms: [...first, ...last, UNREAD] }
    last = alarms
    // The checks of this process use the same sentences.
    return { alarms: [...new Set([...first, ...alarms])] }
  }
}

/**
 * Returns a function that says why the database accepts no writes, according to the last finished test write. A write
 * takes as long as the disk needs, so the caller that starts a write waits at most a second.
 */
function writeReader(ctx: Context): () => Promise<string | undefined> {
  let fault: string | undefined
  let open: Promise<void> | undefined
  let triedMs = Number.NEGATIVE_INFINITY
  const trial = async () => {
    await sql
      .raw(TRY_WRITE)
      .execute(ctx.db)
      .then(
        () => {
          fault = undefined
        },
        error => {
          fault = whyUnwritable(error)
        },
      )
    open = undefined
  }
  return async () => {
    if (!open && performance.now() - triedMs >= (fault === undefined ? WRITTEN_MS : UNWRITTEN_MS)) {
      triedMs = performance.now()
      open = trial()
      await inTime(open)
    }
    return open && performance.now() - triedMs > WRITE_DEADLINE_MS ? UNWRITABLE : fault
  }
}

/**
 * Anyone may send this request, without a limit. So all requests within a second share one query to the database. No
 * new query starts while one is open.
 */
function shared<T>(ctx: Context, ask: () => Promise<T>): () => Promise<T> {
  let asked: { at: number; isOpen: boolean; answer: Promise<T> } | undefined
  return () => {
    const at = ctx.now().getTime()
    // The database is also queried again if the clock was set back.
    if (asked && (asked.isOpen || Math.abs(at - asked.at) < SHARED_MS)) return asked.answer
    const fresh = { at, isOpen: true, answer: ask() }
    const close = () => {
      fresh.isOpen = false
    }
    fresh.answer.then(close, close)
    asked = fresh
    return fresh.answer
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
