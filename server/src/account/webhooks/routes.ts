/** `/api/console/webhooks`: a merchant's endpoints. */
import { type Context, reading, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { idempotently, idempotentlyPrepared, idempotentlySealed } from "../../platform/http/run-idempotently.ts"
import { Page } from "../../platform/http/schemas.ts"
import { newestFirst, sendList } from "../../platform/http/send-lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../../platform/http/server.ts"
import { timeAt } from "../../platform/http/time.ts"
import {
  changeWebhook,
  createWebhook,
  deleteWebhook,
  readWebhook,
  recover,
  rollAccountSecret,
  rollWebhookSecret,
  sendTest,
  tryWebhook,
} from "./manage-endpoints.ts"
import { OVERLAP_MS, revealAccountSecret } from "./manage-secrets.ts"
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
  WebhookTest,
  WebhookWhole,
} from "./schema.ts"
import type { Sender } from "./send.ts"

const tags = ["webhooks"]

export function webhookRoutes(app: Server, ctx: Context, sender: Sender): void {
  app.post(
    "/api/console/webhooks",
    {
      schema: {
        operationId: "createWebhook",
        summary: "Registers an endpoint, and shows its secret only once",
        description:
          "The service first sends a signed `ping` to the address. Any answer is accepted except a redirect, 404, 410, 502, 503 and 504: a receiver may refuse a `ping` because it does not have the secret yet. `X-Webhook-Notice` says when the address can be reached only because of WEBHOOK_ALLOW_CIDRS.",
        tags,
        body: WebhookCreate,
        response: { 201: WebhookCreated },
      },
      config: { errors: ["URL_UNREACHABLE"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      reply.code(201)
      const made = await idempotentlySealed(ctx, request, reply, merchantId, {
        prepare: async () => await tryWebhook(ctx, sender, request.body),
        work: async (ctx, tried) => {
          const { id, url, events, active } = await createWebhook(ctx, merchantId, tried)
          return { data: { id, url, secret: tried.secret, events, active } }
        },
      })
      // Trying the URL reveals whether its address is private.
      reply.headers(noticeOf(sender, request.body.url))
      return made
    },
  )

  app.get(
    "/api/console/webhooks",
    {
      schema: {
        operationId: "listWebhooks",
        summary: "All endpoints, including paused endpoints",
        tags,
        querystring: Page,
        response: { 200: WebhookList },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      const query = read.db
        .selectFrom("webhooks")
        .selectAll()
        .where("merchant_id", "=", merchantId)
        .where("deleted_at", "is", null)
        .where("pulled_at", "is", null)
      return await sendList(
        read,
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
        summary: "One endpoint with every field except its secret",
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
        summary: "Changes the given fields; pauses and resumes the endpoint",
        description:
          "A new `url` is first tried, as at registration. Events emitted while the endpoint is paused can be sent later. If the endpoint is moved or paused, or its events change, `settings.webhook_changed` notifies every endpoint, and this one at its old `url`.",
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
      reply.headers(noticeOf(sender, request.body.url))
      return { data: wholeOf(webhook) }
    },
  )

  app.delete(
    "/api/console/webhooks/:id",
    {
      schema: {
        operationId: "deleteWebhook",
        summary: "Removes an endpoint, and notifies it with `settings.webhook_changed`",
        description:
          "Nothing else is sent to it afterwards, except deliveries that a process had already picked up within the last second. Its deliveries can still be read.",
        tags,
        params: WebhookId,
        response: { 200: Success },
      },
    },
    async request => {
      await deleteWebhook(ctx, await callingMerchant(request), request.params.id)
      return { data: { success: true as const } }
    },
  )

  app.post(
    "/api/console/webhooks/:id/test",
    {
      schema: {
        operationId: "testWebhook",
        summary: "Sends a `ping`, or the example of another event, the same way as any event",
        description:
          "An example is marked: its body has `test: true` next to `event`, and its ids belong to nothing. A receiver must not act on it. A paused endpoint gets it too. Read the delivery for the result.",
        tags,
        params: WebhookId,
        body: WebhookTest,
        response: { 201: Delivery },
      },
      config: { idempotencyKey: true, optionalBody: true },
      preValidation: orEmptyBody,
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      reply.code(201)
      return await idempotently(ctx, request, reply, merchantId, async ctx => {
        const deliveryId = await sendTest(ctx, merchantId, request.params.id, request.body.event)
        return { data: await readDelivery(ctx, merchantId, deliveryId) }
      })
    },
  )

  app.post(
    "/api/console/webhooks/:id/roll-secret",
    {
      schema: {
        operationId: "rollWebhookSecret",
        summary: "Creates a new secret and shows it only once",
        description:
          "For 24 hours both secrets sign: `Service-Signature` has a `v1` for each, newest first. `settings.webhook_changed` notifies every endpoint.",
        tags,
        params: WebhookId,
        response: { 200: SecretRolled },
      },
      preValidation: orEmptyBody,
      config: { idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      return await idempotentlySealed(ctx, request, reply, merchantId, {
        prepare: nothing,
        work: async ctx => {
          const secret = await rollWebhookSecret(ctx, merchantId, id)
          return { data: { id, secret, previousExpiresAt: overlapEnd(ctx) } }
        },
      })
    },
  )

  app.post(
    "/api/console/webhooks/:id/recover",
    {
      schema: {
        operationId: "recoverWebhook",
        summary: "Resends every delivery that failed or was skipped since a given time",
        tags,
        params: WebhookId,
        body: Recover,
        response: { 200: Recovered },
      },
      config: { idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const since = timeAt("since", request.body.since)
      return await idempotentlyPrepared(ctx, request, reply, merchantId, {
        // Recovery commits as it proceeds. If the process is killed, a repeated request recovers the rest.
        prepare: async () => await recover(ctx, merchantId, request.params.id, since),
        work: async (_, data) => ({ data }),
      })
    },
  )

  app.post(
    "/api/console/settings/webhook-secret",
    {
      schema: {
        operationId: "rollAccountSecret",
        summary: "Creates a new secret for callback URLs and shows it only once",
        description:
          "It signs events sent to the `callbackUrl` of a session. For 24 hours the previous secret signs too. `settings.webhook_changed` notifies every endpoint.",
        tags: ["settings"],
        response: { 200: AccountSecretRolled },
      },
      preValidation: orEmptyBody,
      config: { idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      return await idempotentlySealed(ctx, request, reply, merchantId, {
        prepare: nothing,
        work: async ctx => {
          const webhookSecret = await rollAccountSecret(ctx, merchantId)
          return { data: { webhookSecret, previousExpiresAt: overlapEnd(ctx) } }
        },
      })
    },
  )

  app.post(
    "/api/console/settings/webhook-secret/reveal",
    {
      schema: {
        operationId: "revealAccountSecret",
        summary: "Shows the secret for callback URLs, once",
        description:
          "Every account starts with a secret, which can be read here only once. Afterwards, and after a roll (whose answer shows the new secret), the answer is 409.",
        tags: ["settings"],
        response: { 200: AccountSecretRevealed },
      },
      preValidation: orEmptyBody,
      config: { errors: ["INVALID_OPERATION"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      return await idempotentlySealed(ctx, request, reply, merchantId, {
        prepare: nothing,
        work: async ctx => ({ data: { webhookSecret: await revealAccountSecret(ctx, merchantId) } }),
      })
    },
  )
}

/** A header instead of a field, because the response schemas are fixed. */
const noticeOf = (sender: Sender, url: string | undefined): Record<string, string> => {
  if (url === undefined || !sender.isPrivate(url)) return {}
  return { "x-webhook-notice": "points to a private address that only WEBHOOK_ALLOW_CIDRS allows" }
}

const nothing = async () => undefined

const overlapEnd = (ctx: TxContext): string => new Date(ctx.now().getTime() + OVERLAP_MS).toISOString()

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
