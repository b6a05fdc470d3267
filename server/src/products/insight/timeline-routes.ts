/**
 * `/api/console/timeline/:id` and `/api/console/payments/:id` show events, the reason for the current state, and next
 * actions.
 */
import type { FastifyRequest } from "fastify"
import type { Context } from "../../platform/context.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { describeStory } from "./describe-story.ts"
import { explainStory } from "./explain-story.ts"
import { findStory } from "./find-story.ts"
import { loadStory } from "./load-story.ts"
import { AnyId, PaymentStory, Timeline } from "./schema.ts"
import { timelineOf } from "./timeline.ts"

const tags = ["insight"]

export function timelineRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/timeline/:id",
    {
      schema: {
        operationId: "readTimeline",
        summary: "What happened to any object, why it is in its state, and what you can do now",
        tags,
        params: AnyId,
        response: { 200: Timeline },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => (await readAny(ctx, request, request.params.id)).shown,
  )

  app.get(
    "/api/console/payments/:id",
    {
      schema: {
        operationId: "readPaymentStory",
        summary: "A payment with its transfers, address, payouts, events and timeline",
        description:
          "Accepts any id that `GET /api/console/timeline/:id` accepts, such as a checkout's id for all its payments.",
        tags,
        params: AnyId,
        response: { 200: PaymentStory },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => {
      const { shown, story, rows } = await readAny(ctx, request, request.params.id)
      return { ...shown, ...(await describeStory(ctx, story, rows)) }
    },
  )
}

async function readAny(ctx: Context, request: FastifyRequest, id: string) {
  const merchantId = await callingMerchant(request)
  const story = await findStory(ctx, merchantId, id)
  const rows = await loadStory(ctx, merchantId, story)
  const entries = timelineOf(rows, request.apiKey === undefined)
  const shown = {
    id,
    type: story.subject.type,
    status: await explainStory(ctx, story, rows),
    data: entries.map(({ at, ...entry }) => ({ ...entry, at: at.toISOString() })),
  }
  return { shown, story, rows }
}
