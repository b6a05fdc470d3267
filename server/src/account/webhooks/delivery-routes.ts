/** `/api/console/deliveries` and `/api/console/events`: what was sent where, every attempt, and resending. */
import { type Context, reading } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { inData, newestFirst, sendList } from "../../platform/http/send-lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../../platform/http/server.ts"
import { timeAt } from "../../platform/http/time.ts"
import { readWebhook, resend } from "./manage-endpoints.ts"
import { attemptsOf, deliveryOf, filteredDeliveries, readDelivery } from "./queries.ts"
import {
  Delivery,
  DeliveryId,
  DeliveryList,
  DeliveryQuery,
  DeliveryWhole,
  EventId,
  EventList,
  EventQuery,
  EventWhole,
  WebhookDeliveryQuery,
  WebhookId,
} from "./schema.ts"

const tags = ["webhooks"]

export function deliveryRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/webhooks/:id/deliveries",
    {
      schema: {
        operationId: "listDeliveries",
        summary: "The deliveries to one endpoint, sent and pending",
        tags,
        params: WebhookId,
        querystring: WebhookDeliveryQuery,
        response: { 200: DeliveryList },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      const { id } = await readWebhook(read, merchantId, request.params.id)
      const deliveries = filteredDeliveries(read, merchantId, { ...request.query, webhookId: id })
      return await sendList(read, reply, request.query, deliveries, rows => rows.map(deliveryOf), inData)
    },
  )

  app.get(
    "/api/console/deliveries",
    {
      schema: {
        operationId: "listAllDeliveries",
        summary: "The deliveries to every endpoint and `callbackUrl`, sent and pending",
        description:
          "Filters combine: a delivery must match all of them. Resend one with `POST /api/console/deliveries/:id/resend`.",
        tags,
        querystring: DeliveryQuery,
        response: { 200: DeliveryList },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const deliveries = filteredDeliveries(read, await callingMerchant(request), request.query)
      return await sendList(read, reply, request.query, deliveries, rows => rows.map(deliveryOf), inData)
    },
  )

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
        summary: "Sends a delivery again now",
        description:
          "Works in every state. It replaces a planned retry, and starts the count of attempts again. To a paused endpoint it is sent once.",
        tags,
        params: DeliveryId,
        response: { 200: Delivery },
      },
      preValidation: orEmptyBody,
    },
    async request => {
      const merchantId = await callingMerchant(request)
      await resend(ctx, merchantId, request.params.id)
      return { data: await readDelivery(ctx, merchantId, request.params.id) }
    },
  )

  app.get(
    "/api/console/events",
    {
      schema: {
        operationId: "listEvents",
        summary: "Events, exactly as they are sent",
        tags,
        querystring: EventQuery,
        response: { 200: EventList },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      const { type, since } = request.query
      let query = read.db.selectFrom("events").selectAll().where("merchant_id", "=", merchantId)
      if (type !== undefined) query = query.where("type", "=", type)
      if (since !== undefined) query = query.where("created_at", ">=", timeAt("since", since))
      const parsed = (rows: { body: string }[]) => rows.map(({ body }) => JSON.parse(body))
      return await sendList(read, reply, request.query, newestFirst(query), parsed, inData)
    },
  )

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
