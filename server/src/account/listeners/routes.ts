/** `/api/console/listeners`: endpoints without a URL, for developer machines and tests. */
import type { FastifyRequest } from "fastify"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotentlySealed } from "../../platform/http/run-idempotently.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { createListener, endListener, listenersOf } from "./manage-listeners.ts"
import { recordResults } from "./record-results.ts"
import {
  ListenerCreate,
  ListenerCreated,
  ListenerEnded,
  ListenerId,
  ListenerList,
  PulledList,
  PullQuery,
  Recorded,
  Results,
} from "./schema.ts"
import { streamPulled, waitForPulled } from "./send-pulled.ts"

const tags = ["webhooks"]

export function listenerRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/listeners",
    {
      schema: {
        operationId: "createListener",
        summary: "Creates an endpoint without a URL, and shows its secret only once",
        description:
          "Its deliveries are pulled instead of sent, so they reach a machine that accepts no connections. They are like other deliveries, with the same retries, and can be resent. `settings.webhook_changed` notifies every endpoint. A merchant can have three listeners. A listener ends automatically if nobody pulls from it for ten minutes. In live mode the merchant's setting `liveListeners` must allow listeners.",
        tags,
        body: ListenerCreate,
        response: { 201: ListenerCreated },
      },
      config: { errors: ["INVALID_OPERATION"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      reply.code(201)
      return await idempotentlySealed(ctx, request, reply, merchantId, {
        prepare: async () => undefined,
        work: async ctx => {
          const { row, secret } = await createListener(ctx, merchantId, request.body)
          return { ...listenerOf(row), secret }
        },
      })
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/listeners",
    operationId: "listListeners",
    summary: "The listeners that have not ended",
    tags,
    answer: ListenerList,
    source: (read, merchantId) => newestFirst(listenersOf(read, merchantId)),
    show: (_, rows) => rows.map(listenerOf),
  })

  app.delete(
    "/api/console/listeners/:id",
    {
      schema: {
        operationId: "endListener",
        summary: "Ends a listener; its pending deliveries are skipped",
        tags,
        params: ListenerId,
        response: { 200: ListenerEnded },
      },
    },
    async request => {
      const { id } = request.params
      await endListener(ctx, await callingMerchant(request), id)
      return { deleted: true as const, id }
    },
  )

  pullRoutes(app, ctx)
}

function pullRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/listeners/:id/deliveries",
    {
      // A HEAD request would claim deliveries and return them to nobody.
      exposeHeadRoute: false,
      schema: {
        operationId: "pullDeliveries",
        summary: "Pulls the deliveries that are due, as a stream or a long poll",
        description:
          "If you accept `text/event-stream` and send no `wait`, the answer is a stream of server-sent events. Each `delivery` event has the JSON of one delivery in `data`; `over` says that the listener has ended. At most ten deliveries can lack a result at a time; report each with `POST …/results`. A delivery without a result is sent again, with the same `deliveryId`, when its lease ends 30 seconds after WEBHOOK_TIMEOUT. Several callers can pull one listener: they share its deliveries, and no two get the same delivery.",
        tags,
        params: ListenerId,
        querystring: PullQuery,
        response: { 200: PulledList },
      },
    },
    async (request, reply) => {
      const from = { merchantId: await callingMerchant(request), id: request.params.id }
      const { wait } = request.query
      if (wait === undefined && asksForStream(request)) return (await streamPulled(ctx, request, reply, from)) as never
      reply.header("cache-control", "no-store")
      return { data: await waitForPulled(ctx, request, reply, { ...from, waitS: wait ?? 0 }) }
    },
  )

  app.post(
    "/api/console/listeners/:id/results",
    {
      schema: {
        operationId: "reportResults",
        summary: "Reports what receivers answered to pulled deliveries",
        description:
          "A status from 200 to 299 without an `error` marks the delivery as delivered. After any other result it is retried like a delivery to a URL. The delivery's log shows the report. A repeated report changes nothing.",
        tags,
        params: ListenerId,
        body: Results,
        response: { 200: Recorded },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      return { recorded: await recordResults(ctx, merchantId, request.params.id, request.body) }
    },
  )
}

const asksForStream = ({ headers: { accept = "" } }: FastifyRequest): boolean => accept.includes("text/event-stream")

const listenerOf = (row: Row<"webhooks">) => ({
  id: row.id,
  events: row.events as string[],
  callbacks: row.copies_callbacks,
  description: row.description,
  createdAt: row.created_at.toISOString(),
  pulledAt: (row.pulled_at ?? row.created_at).toISOString(),
})
