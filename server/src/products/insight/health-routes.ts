/** `/api/console/health` reports whether the parts of the service that a merchant relies on work. */
import { Type } from "typebox"
import type { Context } from "../../platform/context.ts"
import { Described, Nullable, Timestamp } from "../../platform/http/schemas.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { readHealth } from "./read-health.ts"

const Sentences = (description: string) => Type.Array(Type.String(), { description })
const Count = Type.Integer({ description: "At most 1,000 are counted" })

const ServiceHealth = Type.Object({
  networks: Type.Array(
    Type.Object({
      chain: Type.String(),
      head: Described(Nullable(Type.String()), "The newest block that the service has read; null before the first"),
      finalized: Nullable(Type.String()),
      behind: Described(Nullable(Type.String()), "How many blocks the known transfers are behind the head"),
      readAt: Nullable(Timestamp),
      payments: Type.Enum(["open", "paused"], { type: "string" }),
      alarms: Sentences("What is wrong there"),
    }),
  ),
  queue: Type.Object({
    payouts: Type.Object({ queued: Count, held: Count, sending: Count, oldestAt: Nullable(Timestamp) }),
    deliveries: Type.Object({ pending: Count, oldestAt: Nullable(Timestamp) }),
  }),
  alarms: Sentences("Everything that needs a person, as text"),
})

export function healthInsightRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/health",
    {
      schema: {
        operationId: "readServiceHealth",
        summary: "The state of each network, what is waiting, and what is wrong, as text",
        description:
          "Problems that only the operator can see and fix, such as a network endpoint that lies, are in `/readyz` and the metrics.",
        tags: ["insight"],
        response: { 200: ServiceHealth },
      },
    },
    async request => await readHealth(ctx, await callingMerchant(request)),
  )
}
