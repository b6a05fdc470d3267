/** `/api/console/deliveries` and `/api/console/events`: events, deliveries, attempts, and resending. */
import { sql } from "kysely"
import { type Context, reading } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotently } from "../../platform/http/run-idempotently.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../../platform/http/server.ts"
import { timeAt } from "../../platform/http/time.ts"
import { eventCatalogue } from "./event-document.ts"
import { readWebhook, resend } from "./manage-endpoints.ts"
import { attemptsOf, deliveryOf, eventIdsOf, filteredDeliveries, readDelivery } from "./queries.ts"
import { statsOf } from "./read-stats.ts"
import {
  Delivery,
  DeliveryFilters,
  DeliveryId,
  DeliveryList,
  DeliveryWhole,
  EventFilters,
  EventId,
  EventList,
  EventTypeList,
  EventWhole,
  StatsQuery,
  WebhookDeliveryFilters,
  WebhookId,
  WebhookStats,
} from "./schema.ts"

const tags = ["webhooks"]

export function deliveryRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path: "/api/console/webhooks/:id/deliveries",
    operationId: "listDeliveries",
    summary: "The deliveries to one endpoint, sent and pending",
    tags,
    params: WebhookId,
    filter: WebhookDeliveryFilters.properties,
    answer: DeliveryList,
    source: async (read, merchantId, filter, params) => {
      const { id } = await readWebhook(read, merchantId, params.id)
      return filteredDeliveries(read, merchantId, { ...filter, webhookId: id })
    },
    show: (_, rows) => rows.map(deliveryOf),
  })

  app.get(
    "/api/console/webhooks/:id/stats",
    {
      schema: {
        operationId: "readWebhookStats",
        summary: "How many deliveries to an endpoint arrived, and how long its answers took",
        description: "A delivery, with all its attempts, counts in the period in which it was created.",
        tags,
        params: WebhookId,
        querystring: StatsQuery,
        response: { 200: WebhookStats },
      },
    },
    async request => {
      const read = await reading(ctx)
      const { id } = await readWebhook(read, await callingMerchant(request), request.params.id)
      return { data: await statsOf(read, id, request.query.by) }
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/deliveries",
    operationId: "listAllDeliveries",
    summary: "The deliveries to every endpoint and `callbackUrl`, sent and pending",
    description:
      "Filters combine: a delivery must match all of them. Resend one with `POST /api/console/deliveries/:id/resend`.",
    tags,
    filter: DeliveryFilters.properties,
    answer: DeliveryList,
    source: filteredDeliveries,
    show: (_, rows) => rows.map(deliveryOf),
  })

  app.get(
    "/api/console/deliveries/:id",
    {
      schema: {
        operationId: "readDelivery",
        summary: "One delivery with every attempt",
        tags,
        params: DeliveryId,
        response: { 200: DeliveryWhole },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const delivery = await readDelivery(ctx, merchantId, request.params.id)
      return { data: { ...delivery, log: await attemptsOf(ctx, delivery.id) } }
    },
  )

  app.post(
    "/api/console/deliveries/:id/resend",
    {
      schema: {
        operationId: "resendDelivery",
        summary: "Resends a delivery now",
        description:
          "Works in every state. It replaces a planned retry and restarts the count of attempts. A paused endpoint gets it once.",
        tags,
        params: DeliveryId,
        response: { 200: Delivery },
      },
      config: { idempotencyKey: true, errors: ["ERASED"] },
      preValidation: orEmptyBody,
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      return await idempotently(ctx, request, reply, merchantId, async ctx => {
        await resend(ctx, merchantId, id)
        return { data: await readDelivery(ctx, merchantId, id) }
      })
    },
  )

  app.get(
    "/api/console/event-types",
    {
      schema: {
        operationId: "listEventTypes",
        summary: "Every event: when and to whom it is sent, the JSON Schema of its body, and an example",
        tags,
        response: { 200: EventTypeList },
      },
    },
    async () => ({ data: eventCatalogue }),
  )

  listRoute(app, ctx, {
    path: "/api/console/events",
    operationId: "listEvents",
    summary: "Events, exactly as they are sent",
    tags,
    filter: EventFilters.properties,
    answer: EventList,
    source: ({ db }, merchantId, { type, since, object }) => {
      let query = db.selectFrom("events").selectAll().where("merchant_id", "=", merchantId)
      if (type !== undefined) query = query.where("type", "=", type)
      if (since !== undefined) query = query.where("created_at", ">=", timeAt("since", since))
      if (object !== undefined) query = query.where(sql<boolean>`id = any(array(${eventIdsOf(merchantId, [object])}))`)
      return newestFirst(query)
    },
    show: (_, rows) => rows.map(({ body }) => JSON.parse(body)),
  })

  app.get(
    "/api/console/events/:id",
    {
      schema: {
        operationId: "readEvent",
        summary: "One event, exactly as it is sent",
        description: "`GET /api/console/deliveries?eventId=` lists where it was sent.",
        tags,
        params: EventId,
        response: { 200: EventWhole },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const event = await ctx.db
        .selectFrom("events")
        .select("body")
        .where("id", "=", id)
        .where("merchant_id", "=", merchantId)
        .executeTakeFirst()
      if (!event) throw new ApiError("NOT_FOUND")
      return { data: JSON.parse(event.body) }
    },
  )
}
