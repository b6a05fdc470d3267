/** `/api/console/webhooks`: a merchant's endpoints. */
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { newestFirst, sendList } from "../http/lists.ts"
import { Page } from "../http/schemas.ts"
import { callingMerchant, orEmptyBody, type Server } from "../http/server.ts"
import { timeAt } from "../http/time.ts"
import {
  changeWebhook,
  createWebhook,
  deleteWebhook,
  readWebhook,
  recover,
  rollAccountSecret,
  rollWebhookSecret,
  sendTest,
} from "./manage-endpoints.ts"
import { readDelivery } from "./queries.ts"
import {
  AccountSecretRevealed,
  AccountSecretRolled,
  Delivery,
  Recover,
  Recovered,
  SecretRolled,
  Success,
  WebhookChange,
  WebhookCreate,
  WebhookCreated,
  WebhookId,
  WebhookList,
  WebhookWhole,
} from "./schema.ts"
import { OVERLAP_MS, revealAccountSecret } from "./secrets.ts"
import type { Sender } from "./send.ts"

const tags = ["webhooks"]

export function webhookRoutes(app: Server, ctx: Context, sender: Sender): void {
  app.post(
    "/api/console/webhooks",
    {
      schema: {
        operationId: "createWebhook",
        summary: "Registers an endpoint, and shows its secret this once",
        description:
          "The address is tried with a signed `ping`. Any answer will do but a redirect, 404, 410, 502, 503 and 504: a receiver may refuse what it holds no secret for yet. `X-Webhook-Notice` says when only WEBHOOK_ALLOW_CIDRS lets it be reached.",
        tags,
        body: WebhookCreate,
        response: { 201: WebhookCreated },
      },
      // No Idempotency-Key: the answer, with the secret in it, would be kept.
      config: { errors: ["URL_UNREACHABLE"] },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { webhook, secret } = await createWebhook(ctx, sender, merchantId, request.body)
      const { id, url, events, active } = webhook
      reply.code(201).headers(noticeOf(url))
      return { data: { id, url, secret, events, active } }
    },
  )

  app.get(
    "/api/console/webhooks",
    {
      schema: {
        operationId: "listWebhooks",
        summary: "All endpoints, paused ones too",
        tags,
        querystring: Page,
        response: { 200: WebhookList },
      },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const query = ctx.db
        .selectFrom("webhooks")
        .selectAll()
        .where("merchant_id", "=", merchantId)
        .where("deleted_at", "is", null)
      return await sendList(
        ctx,
        reply,
        request.query,
        newestFirst(query),
        rows => rows.map(listedOf),
        (webhooks, total) => ({ data: { webhooks }, total }),
      )
    },
  )

  app.get(
    "/api/console/webhooks/:id",
    {
      schema: {
        operationId: "readWebhook",
        summary: "One endpoint with everything but its secret",
        tags,
        params: WebhookId,
        response: { 200: WebhookWhole },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      return { data: wholeOf(await readWebhook(ctx, merchantId, request.params.id)) }
    },
  )

  app.put(
    "/api/console/webhooks/:id",
    {
      schema: {
        operationId: "changeWebhook",
        summary: "Changes what is given; pauses and resumes",
        description:
          "Another `url` is tried first, as at registration. What comes while it is paused can be sent later. That it is moved or paused is told to every endpoint with `settings.webhook_changed`, and to this one at its old `url`.",
        tags,
        params: WebhookId,
        body: WebhookChange,
        response: { 200: WebhookWhole },
      },
      config: { errors: ["URL_UNREACHABLE"] },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const webhook = await changeWebhook(ctx, sender, merchantId, request.params.id, request.body)
      ctx.wakes.wakeSoon("deliveries")
      reply.headers(noticeOf(request.body.url))
      return { data: wholeOf(webhook) }
    },
  )

  app.delete(
    "/api/console/webhooks/:id",
    {
      schema: {
        operationId: "deleteWebhook",
        summary:
          "Removes an endpoint: it is told so with `settings.webhook_changed`, and nothing else is sent to it any more",
        tags,
        params: WebhookId,
        response: { 200: Success },
      },
    },
    async request => {
      await deleteWebhook(ctx, await callingMerchant(request), request.params.id)
      ctx.wakes.wakeSoon("deliveries")
      return { data: { success: true as const } }
    },
  )

  app.post(
    "/api/console/webhooks/:id/test",
    {
      schema: {
        operationId: "testWebhook",
        summary: "Sends a `ping` the way every event goes",
        description: "To a paused endpoint too. Read the delivery to see what came of it.",
        tags,
        params: WebhookId,
        response: { 201: Delivery },
      },
      preValidation: orEmptyBody,
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const deliveryId = await sendTest(ctx, merchantId, request.params.id)
      reply.code(201)
      return { data: await readDelivery(ctx, merchantId, deliveryId) }
    },
  )

  app.post(
    "/api/console/webhooks/:id/roll-secret",
    {
      schema: {
        operationId: "rollWebhookSecret",
        summary: "Makes a new secret and shows it this once",
        description:
          "For 24 hours both sign: `Service-Signature` has a `v1` for each, the newest first. Told to every endpoint with `settings.webhook_changed`.",
        tags,
        params: WebhookId,
        response: { 200: SecretRolled },
      },
      preValidation: orEmptyBody,
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const secret = await rollWebhookSecret(ctx, merchantId, id)
      ctx.wakes.wakeSoon("deliveries")
      return { data: { id, secret, previousExpiresAt: overlapEnd() } }
    },
  )

  app.post(
    "/api/console/webhooks/:id/recover",
    {
      schema: {
        operationId: "recoverWebhook",
        summary: "Sends again what failed or was skipped since a time",
        tags,
        params: WebhookId,
        body: Recover,
        response: { 200: Recovered },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const since = timeAt("since", request.body.since)
      return { data: { recovered: await recover(ctx, merchantId, request.params.id, since) } }
    },
  )

  app.post(
    "/api/console/settings/webhook-secret",
    {
      schema: {
        operationId: "rollAccountSecret",
        summary: "Makes a new secret for callback URLs and shows it this once",
        description: "It signs what goes to the `callbackUrl` of a session. For 24 hours the one before signs too.",
        tags: ["settings"],
        response: { 200: AccountSecretRolled },
      },
      preValidation: orEmptyBody,
    },
    async request => {
      const webhookSecret = await rollAccountSecret(ctx, await callingMerchant(request))
      return { data: { webhookSecret, previousExpiresAt: overlapEnd() } }
    },
  )

  app.post(
    "/api/console/settings/webhook-secret/reveal",
    {
      schema: {
        operationId: "revealAccountSecret",
        summary: "Shows the secret for callback URLs, once",
        description:
          "An account has a secret from its first day. Whoever has not seen it gets it here; afterwards, and after a roll, whose answer shows the new one, this is a 409.",
        tags: ["settings"],
        response: { 200: AccountSecretRevealed },
      },
      preValidation: orEmptyBody,
      config: { errors: ["INVALID_OPERATION"] },
    },
    async request => {
      const webhookSecret = await revealAccountSecret(ctx, await callingMerchant(request))
      return { data: { webhookSecret } }
    },
  )

  /** A header, not a field: the answers' shapes are fixed. */
  const noticeOf = (url: string | undefined): Record<string, string> => {
    if (url === undefined || !sender.isPrivate(url)) return {}
    return { "x-webhook-notice": "leads to a private address that WEBHOOK_ALLOW_CIDRS opens" }
  }

  const overlapEnd = (): string => new Date(ctx.now().getTime() + OVERLAP_MS).toISOString()
}

const listedOf = ({ id, url, events, active, created_at }: Row<"webhooks">) => {
  return { id, url, events, active, createdAt: created_at.toISOString() }
}

const wholeOf = (row: Row<"webhooks">) => ({
  ...listedOf(row),
  merchantId: row.merchant_id,
  description: row.description,
  disabledReason: row.disabled_reason,
  updatedAt: row.updated_at.toISOString(),
})
