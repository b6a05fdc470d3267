/** `/healthz`: the process answers. `/readyz`: it can do its work. `/metrics`: for whoever holds the token. */
import { createHash, timingSafeEqual } from "node:crypto"
import { sql } from "kysely"
import { Type } from "typebox"
import type { Context } from "../context.ts"
import { ApiError } from "../errors.ts"
import { registry } from "../metrics.ts"
import type { Server } from "./server.ts"

/** A network that was not looked at for so many intervals is in trouble. */
const MISSED_ROUNDS = 5

export function healthRoutes(app: Server, ctx: Context): void {
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
        response: { 200: Type.Object({ status: Type.String() }) },
      },
      config: { errors: ["NOT_READY"] },
    },
    async () => {
      const faults = await troubles(ctx).catch(() => ["the database can't be reached"])
      if (faults.length > 0) throw new ApiError("NOT_READY", undefined, `Not ready: ${faults.join("; ")}.`)
      return { status: "ready" }
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

async function troubles(ctx: Context): Promise<string[]> {
  if (ctx.signal.aborted) return ["it is stopping"]
  await sql`select 1`.execute(ctx.db)
  const cursors = await ctx.db.selectFrom("cursors").select(["chain_id", "looked_at"]).execute()
  const lateMs = MISSED_ROUNDS * Math.max(ctx.settings.verifyIntervalMs, 5_000)
  return ctx.chain.networks
    .filter(network => {
      const lookedAt = cursors.find(cursor => cursor.chain_id === network.chainId)?.looked_at
      return !lookedAt || ctx.now().getTime() - lookedAt.getTime() > lateMs
    })
    .map(network => `${network.name} has not been looked at lately`)
}

/** Constant in time; the hashes make the lengths equal. */
function sameText(a: string, b: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest()
  return timingSafeEqual(digest(a), digest(b))
}
