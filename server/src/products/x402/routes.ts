/** The routes `/api/p/{slug}` and `/api/agent/*`: offers for agents, and the state of their payments. */
import type { FastifyReply, FastifyRequest } from "fastify"
import { Type } from "typebox"
import { NoBody } from "../../account/identity/schema.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { orEmptyBody, type Server } from "../../platform/http/server.ts"
import { describeBundle } from "../proxy/describe-bundle.ts"
import { BundleDescription } from "../proxy/schema.ts"
import { callerOf, idOfRetryToken } from "./lease-settlement.ts"
import { type Item, linkItem, paywallItem } from "./load-item.ts"
import { networkName, readPayment } from "./protocol.ts"
import { readSettlement, recentOutcome } from "./read-outcome.ts"
import {
  AmountQuery,
  Bought,
  Content,
  DidDocument,
  Discovery,
  PaymentRequired,
  PaywallPath,
  Pending,
  SettlementPath,
  SettlementStatus,
  SlugPath,
} from "./schema.ts"
import { didDocument } from "./sign-statements.ts"
import { askPrice, takePayment } from "./take-payment.ts"
import { discoveryDocument } from "./write-discovery.ts"

const tags = ["agents"]
const paying =
  "Without a payment it answers 402 and says what to pay, in versions 1 and 2 of x402. With a payment in `PAYMENT-SIGNATURE` (or `X-PAYMENT`) it settles the payment and answers once. The answer has the result in `PAYMENT-RESPONSE` (or `X-PAYMENT-RESPONSE`), and a `Sluice-Retry-Token` that repeats the answer for a day without another payment."

/** The errors that every route that takes a payment can return. */
const errors = [
  "AUTHORIZATION_ALREADY_USED",
  "AUTHORIZATION_REFUSED",
  "PAYMENT_ALREADY_SERVED",
  "PAYMENT_IDENTIFIER_USED",
  "INVALID_OPERATION",
  "ACCESS_REQUIRED",
  "SANCTIONS_MATCH",
  "RELAY_UNAVAILABLE",
  "CHAIN_UNAVAILABLE",
  "PAYMENTS_PAUSED",
] as const

export function agentRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/p/:slug",
    {
      schema: {
        operationId: "buyBySlug",
        summary: "Buys what a slug names, a paywall's content or a payment link, or describes a bundle of calls",
        description: paying,
        tags,
        params: SlugPath,
        querystring: AmountQuery,
        response: { 200: Type.Union([Bought, BundleDescription]), 202: Pending, 402: PaymentRequired },
      },
      config: { errors: [...errors, "LINK_NOT_FOUND", "LINK_UNAVAILABLE"] },
    },
    async (request, reply) => {
      const { slug } = request.params
      const bundle = await describeBundle(ctx, slug)
      if (bundle) return bundle
      const path = request.raw.url ?? `/api/p/${slug}`
      const paywall = await ctx.db.selectFrom("paywalls").select("id").where("slug", "=", slug).executeTakeFirst()
      const item = paywall
        ? await paywallItem(ctx, paywall.id, path)
        : await linkItem(ctx, slug, path, {
            amount: request.query.amount,
            payTo: isHead(request) ? undefined : await payToOf(ctx, request),
            caller: callerOf(ctx, request),
          })
      return await sell(ctx, request, reply, item)
    },
  )

  app.post(
    "/api/agent/paywalls/:id/settle",
    {
      schema: {
        operationId: "buyPaywall",
        summary: "Buys a paywall's content",
        description: paying,
        tags,
        params: PaywallPath,
        body: NoBody,
        response: { 200: Content, 202: Pending, 402: PaymentRequired },
      },
      preValidation: orEmptyBody,
      config: { errors: [...errors, "PAYWALL_NOT_FOUND"] },
    },
    async (request, reply) => {
      const { id } = request.params
      return await sell(ctx, request, reply, await paywallItem(ctx, id, `/api/agent/paywalls/${id}/settle`))
    },
  )

  app.get(
    "/api/agent/payments/:id",
    {
      schema: {
        operationId: "readAgentPayment",
        summary: "The state of an agent's payment",
        description:
          "For the `statusUrl` of a 202. When the payment is settled, repeat the request with its `Sluice-Retry-Token`.",
        tags,
        params: SettlementPath,
        response: { 200: SettlementStatus },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => {
      const row = await readSettlement(ctx, request.params.id)
      if (!row) throw new ApiError("NOT_FOUND")
      return await statusOf(ctx, row)
    },
  )

  app.get(
    "/.well-known/x402",
    {
      schema: {
        operationId: "discoverOffers",
        summary: "What this installation sells to agents, as far as its merchants listed it",
        tags,
        response: { 200: Discovery },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "public, max-age=60").header("access-control-allow-origin", "*")
      return await discoveryDocument(ctx)
    },
  )

  app.get(
    "/.well-known/did.json",
    {
      schema: {
        operationId: "readDidDocument",
        summary: "The public keys of signed offers and receipts, as `did:web` resolves them",
        tags,
        response: { 200: DidDocument },
      },
    },
    async (_request, reply) => {
      reply.header("cache-control", "public, max-age=300")
      return await didDocument(ctx)
    },
  )
}

/** Formats a settlement's state for callers. */
export async function statusOf(ctx: Context, row: NonNullable<Awaited<ReturnType<typeof readSettlement>>>) {
  const network = networkOf(ctx.chain, row.chain_id)
  const outcome = await recentOutcome(ctx, network, row)
  const shared = { network: networkName(network, 2), createdAt: row.created_at.toISOString() }
  if (outcome.state === "settled")
    return { status: "settled" as const, message: "It is settled.", txHash: outcome.txHash, ...shared }
  if (outcome.state === "failed" && outcome.replayableUntil === undefined)
    return { status: "failed" as const, message: `${outcome.words} Nothing was paid.`, txHash: null, ...shared }
  const message =
    outcome.state === "failed"
      ? `${outcome.words} Until ${outcome.replayableUntil} anyone can still execute it: do not pay again before then.`
      : "It is in progress. Do not pay again."
  return { status: "pending" as const, message, txHash: null, ...shared }
}

/**
 * Whether a request asks only for headers. No payment is taken from such a request, because its answer can't carry
 * the purchase.
 */
const isHead = ({ method }: FastifyRequest): boolean => method === "HEAD"

async function sell(ctx: Context, request: FastifyRequest, reply: FastifyReply, { offer, serve }: Item) {
  if (isHead(request)) return (await askPrice(ctx, reply, offer)) ?? reply
  const paid = await takePayment(ctx, request, reply, offer)
  if (!paid) return reply
  return (await serve(paid)) as never
}

/** The address that a request pays or has paid, from its payment or its retry token. */
async function payToOf(ctx: Context, { headers }: FastifyRequest): Promise<Address | undefined> {
  const token = headers["sluice-retry-token"]
  if (token === undefined) return readPayment(headers)?.authorization.to
  const id = idOfRetryToken(ctx, `${token}`)
  return id === undefined ? undefined : (await readSettlement(ctx, id))?.pay_to
}
