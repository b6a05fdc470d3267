/** `/api/console/deliveries` and `/api/console/events`: what was sent where, each attempt, and sending it again. */
import type { Context } from "../context.ts"
import { pageOf } from "../http/lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../http/server.ts"
import { timeAt } from "../http/time.ts"
import { readWebhook, resend } from "./console.ts"
import { attemptsOf, deliveriesOf, deliveryOf, readDelivery } from "./queries.ts"
import {
  Delivery,
  DeliveryId,
  DeliveryList,
  DeliveryQuery,
  DeliveryWhole,
  EventList,
  EventQuery,
  WebhookId,
} from "./schema.ts"

const tags = ["webhooks"]

export function deliveryRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/webhooks/:id/deliveries",
    {
      schema: {
        operationId: "listDeliveries",
        summary: "What was sent to an endpoint, and what waits",
        tags,
        params: WebhookId,
        querystring: DeliveryQuery,
        response: { 200: DeliveryList },
      },
    },
    async request => {
      const merchantId = await callingMerchant(ctx, request)
      const { id } = await readWebhook(ctx, merchantId, request.params.id)
      const { status, event } = request.query
      let query = deliveriesOf(ctx, merchantId).where("deliveries.webhook_id", "=", id)
      if (status !== undefined) query = query.where("deliveries.status", "=", status)
      if (event !== undefined) query = query.where("events.type", "=", event)
      const ordered = query.orderBy("deliveries.created_at", "desc").orderBy("deliveries.id", "desc")
      const { rows, total } = await pageOf(ordered, request.query)
      return { data: rows.map(deliveryOf), total }
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
      const merchantId = await callingMerchant(ctx, request)
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
          "Whatever became of it, and to a paused endpoint too. It takes the place of a planned retry, and counts its attempts anew.",
        tags,
        params: DeliveryId,
        response: { 200: Delivery },
      },
      preValidation: orEmptyBody,
    },
    async request => {
      const merchantId = await callingMerchant(ctx, request)
      await resend(ctx, merchantId, request.params.id)
      return { data: await readDelivery(ctx, merchantId, request.params.id) }
    },
  )

  app.get(
    "/api/console/events",
    {
      schema: {
        operationId: "listEvents",
        summary: "What happened, just as it is sent",
        tags,
        querystring: EventQuery,
        response: { 200: EventList },
      },
    },
    async request => {
      const merchantId = await callingMerchant(ctx, request)
      const { type, since } = request.query
      let query = ctx.db.selectFrom("events").selectAll().where("merchant_id", "=", merchantId)
      if (type !== undefined) query = query.where("type", "=", type)
      if (since !== undefined) query = query.where("created_at", ">=", timeAt("since", since))
      const { rows, total } = await pageOf(query.orderBy("created_at", "desc").orderBy("id", "desc"), request.query)
      return { data: rows.map(({ body }) => JSON.parse(body)), total }
    },
  )
}
