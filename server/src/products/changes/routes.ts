/** `/api/console/stream` and `/api/console/changes` report changes in a merchant's lists as they are committed. */
import type { Context } from "../../platform/context.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { Changes, ChangesQuery, StreamQuery } from "./schema.ts"
import { awaitChanges, streamChanges } from "./send-changes.ts"

export function changeRoutes(app: Server, ctx: Context): void {
  // Left out of the OpenAPI document, because the clients generated from it read only JSON. docs/developers/live.md
  // describes this route.
  app.get(
    "/api/console/stream",
    { schema: { hide: true, querystring: StreamQuery }, exposeHeadRoute: false },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const last = request.headers["last-event-id"]
      // On a reconnect, a browser sends the header, and repeats the query of the first connection.
      const after = typeof last === "string" && last !== "" ? last : request.query.after
      await streamChanges(ctx, request, reply, merchantId, after)
      return reply
    },
  )

  app.get(
    "/api/console/changes",
    {
      schema: {
        operationId: "listChanges",
        summary: "Changes in your lists, in the order of commits",
        description:
          "Request once without `after` to get the current position, read your lists, then poll with `after`. Changes are kept for 24 hours. Each change arrives at least once. `GET /api/console/stream` sends the same changes as server-sent events.",
        tags: ["insight"],
        querystring: ChangesQuery,
        response: { 200: Changes },
      },
      exposeHeadRoute: false,
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { after, wait = 0 } = request.query
      return await awaitChanges(ctx, request, reply, { merchantId, after, waitS: wait })
    },
  )
}
