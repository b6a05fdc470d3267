/** `/api/console/requests`: what a merchant's members and API keys requested, and the answers. */
import { type Context, reading } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { entryOf, requestsById, requestsOf } from "./queries.ts"
import { RequestFilters, RequestId, RequestList, RequestsFound } from "./schema.ts"

const tags = ["request log"]

export function requestRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/requests",
    operationId: "listRequests",
    summary: "The requests of your people and API keys in the last 30 days, newest first",
    description:
      "An entry is written within a second after the answer. It has no request body, and only the pattern of the path. A call to an assistant's tool appears as `/mcp/` with the tool's name, in addition to the requests that the tool makes. Requests of payers and strangers are not logged. Under load, entries can be dropped (and are counted), so a missing entry does not prove that no request was made. The audit log contains every change.",
    tags,
    filter: RequestFilters.properties,
    answer: RequestList,
    source: (read, merchantId, filter) =>
      newestFirst(requestsOf(read, merchantId, filter), { at: "at", id: "n", isNumber: true }),
    show: (_, rows) => rows.map(entryOf),
  })

  app.get(
    "/api/console/requests/:id",
    {
      schema: {
        operationId: "findRequests",
        summary: "The requests with an `X-Request-Id`",
        description: "This is a list, because callers can choose the id and reuse it.",
        tags,
        params: RequestId,
        response: { 200: RequestsFound },
      },
    },
    async request => {
      const read = await reading(ctx)
      const rows = await requestsById(read, await callingMerchant(request), request.params.id)
      if (rows.length === 0)
        throw new ApiError(
          "NOT_FOUND",
          undefined,
          "The log has no request of yours with this id. It is written within a second after the answer, keeps 30 days, and has no requests of payers.",
        )
      return { data: rows.map(entryOf) }
    },
  )
}
