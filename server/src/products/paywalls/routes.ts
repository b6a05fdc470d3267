/** `/api/paywalls`: the API for buyers, and for the pages that serve them. */
import { Type } from "typebox"
import { NoBody } from "../../account/identity/schema.ts"
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { pausedDeposits } from "../../ledger/payouts/check-paused.ts"
import { statusMessage } from "../../ledger/scanner/submission-faults.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import { checksummed, parseHash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { type Context, reading } from "../../platform/context.ts"
import { gather } from "../../platform/db/gather.ts"
import { ApiError } from "../../platform/errors.ts"
import { awaitEnd, MAX_WAIT_S, POLL_PAUSE_MS, polling } from "../../platform/http/await-end.ts"
import { AddressText, Described } from "../../platform/http/schemas.ts"
import { orEmptyBody, type Server } from "../../platform/http/server.ts"
import type { Shared } from "../../platform/http/shared-reads.ts"
import { whenReady } from "../../platform/http/when-ready.ts"
import { payerName } from "../../platform/jobs/wake-payload.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { sessionUrl } from "../checkouts/show-session.ts"
import { type KnownAccess, openKnownAccess } from "./cache-access.ts"
import { payToOf } from "./manage-paywalls.ts"
import { accessName, accessOf, type FoundAccess, readAccess } from "./read-access.ts"
import {
  AccessAnswer,
  Id,
  PaymentId,
  PaymentStatus,
  PaymentSubmit,
  PaymentSubmitted,
  PublicPaywall,
  Subscribed,
} from "./schema.ts"
import { type PaymentState, paymentState, publicPaywall, submitPayment } from "./submit-payment.ts"
import { startSubscription } from "./subscribe.ts"

const tags = ["buyers"]

const AddressQuery = Type.Object({ address: Described(AddressText, "The wallet to check") })
const StatusQuery = Type.Object({
  address: Described(AddressText, "The wallet that paid"),
  wait: Type.Integer({
    minimum: 0,
    maximum: MAX_WAIT_S,
    default: 0,
    description: "Seconds to wait for a final result",
  }),
})

export function paywallRoutes(app: Server, ctx: Context): void {
  const knownAccess = keepAccess(ctx)
  app.get(
    "/api/paywalls/:id",
    {
      schema: {
        operationId: "showPaywall",
        summary: "What a buyer needs in order to pay",
        tags,
        params: Id,
        response: { 200: PublicPaywall },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"] },
    },
    async request => {
      const read = await reading(ctx)
      const row = await publicPaywall(read, request.params.id)
      await watch(ctx, row.id)
      const network = networkOf(ctx.chain, row.chain_id)
      const { name: chain, chainId, token } = network
      const payTo = await payToOf(read, row.id)
      const paused = (await pausedDeposits(read))(network, payTo)
      return {
        id: row.id,
        name: row.name,
        description: row.description,
        price: formatAmount(row.price, token.decimals),
        currency: row.currency,
        contentType: row.content_type,
        pricingModel: row.pricing_model,
        subscriptionProductId: row.subscription_product_id,
        active: row.active,
        chain,
        chainId,
        paused,
        ...(row.active && !paused ? { payTo: checksummed(payTo.address) } : {}),
        token: { address: checksummed(token.address), decimals: token.decimals, symbol: token.symbol },
      }
    },
  )

  app.get(
    "/api/paywalls/:id/verify",
    {
      schema: {
        operationId: "verifyAccess",
        summary: "Whether an address has access now",
        description:
          "Reports what an address has paid for, not who sends the request. If the paywall has a `subscriptionProductId`, a subscription to that product gives access until its grace period ends, and `txHash` is its last payment. A request with an API key counts against the key's rate limit.",
        tags,
        params: Id,
        querystring: AddressQuery,
        response: { 200: AccessAnswer },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"] },
    },
    request =>
      whenReady(knownAccess(request.params.id, addressField("address", request.query.address)), access =>
        access
          ? { hasAccess: true, expiresAt: access.expiresAt.toISOString(), txHash: access.txHash }
          : { hasAccess: false },
      ),
  )

  app.post(
    "/api/paywalls/:id/subscribe",
    {
      schema: {
        operationId: "subscribeToPaywall",
        summary: "Starts a checkout of the subscription that opens a paywall",
        description:
          "For a paywall with a `subscriptionProductId`. The checkout pays the first period of a subscription, which belongs to the paying wallet, and leads back to the paywall's page.",
        tags,
        params: Id,
        body: NoBody,
        response: { 201: Subscribed },
      },
      config: { errors: ["PAYWALL_NOT_FOUND", "INVALID_OPERATION", "PAYOUT_ADDRESS_REQUIRED", "PAYMENTS_PAUSED"] },
      preValidation: orEmptyBody,
    },
    async (request, reply) => {
      const session = await startSubscription(ctx, await publicPaywall(ctx, request.params.id))
      const { token } = networkOf(ctx.chain, session.chain_id)
      reply.code(201)
      return {
        sessionId: session.id,
        url: sessionUrl(ctx, session.id),
        amount: formatAmount(session.amount, token.decimals),
        currency: session.currency,
        expiresAt: session.expires_at.toISOString(),
      }
    },
  )

  app.post(
    "/api/paywalls/:id/pay",
    {
      schema: {
        operationId: "submitPayment",
        summary: "Submits the transaction hash of a payment",
        description: "A hint to find the payment sooner. Submitting it again during verification is a no-op.",
        tags,
        params: Id,
        body: PaymentSubmit,
        response: { 200: PaymentSubmitted },
      },
      config: { errors: ["INVALID_TX_HASH", "SANCTIONS_MATCH", "PAYWALL_NOT_FOUND", "ALREADY_VERIFIED"] },
      // The order of the checks is part of the contract: the hash is always checked first.
      attachValidation: true,
    },
    async request => {
      const { id } = request.params
      const txHash = parseHash(Object(request.body).txHash)
      if (!txHash) throw new ApiError("INVALID_TX_HASH")
      if (request.validationError) throw request.validationError
      const address = addressField("address", request.body.address)
      // If the address can't be screened now, the submission is accepted, and settlement screens it before the grant.
      if ((await screen(ctx, [address], `pay:${id}`)).get(address) === "listed") throw new ApiError("SANCTIONS_MATCH")
      await submitPayment(ctx, id, txHash, address)
      return {
        status: "verifying" as const,
        paywallId: id,
        address: checksummed(address),
        txHash,
        message: statusMessage.verifying,
      }
    },
  )

  app.get(
    "/api/paywalls/:id/payments/:txHash",
    {
      schema: {
        operationId: "readPayment",
        summary: "The status of a submitted payment",
        description:
          "With `wait`, the answer comes as soon as the payment is no longer `verifying`, or immediately if too many requests wait. The request counts once against the rate limit.",
        tags,
        params: PaymentId,
        querystring: StatusQuery,
        response: { 200: PaymentStatus },
      },
      config: { errors: ["INVALID_TX_HASH", "PAYWALL_NOT_FOUND", "PAYMENT_NOT_FOUND"] },
    },
    async (request, reply) => {
      const { id } = request.params
      const txHash = parseHash(request.params.txHash)
      if (!txHash) throw new ApiError("INVALID_TX_HASH")
      const address = addressField("address", request.query.address)
      const shared: Shared<PaymentState> = {
        key: ["payment", id, txHash, address],
        names: [id, payerName(id, address)],
        read: async () => await paymentState(await reading(ctx), id, txHash, address),
        pauseMs: () => POLL_PAUSE_MS,
      }
      const isOver = ({ status }: PaymentState) => status !== "verifying"
      const wait = { ...polling(ctx, request), waitS: request.query.wait, isOver }
      const state = await awaitEnd(ctx, reply, shared, wait)
      return { ...state, paywallId: id, address: checksummed(address), txHash }
    },
  )
}

/** Caches access. What is not cached is read from the database, and concurrent reads share a statement. */
function keepAccess(ctx: Context): KnownAccess {
  const found = gather<string, FoundAccess>(names => readAccess(ctx, names))
  return openKnownAccess(ctx, async (id, address) => {
    const of = await found(accessName(id, address))
    if (!of) throw new ApiError("PAYWALL_NOT_FOUND")
    if (of.isWatchEnding) await watch(ctx, id)
    const isSubscribed = of.paywall.subscription_product_id !== null
    // A subscription's access changes in too many ways for a notification of each change.
    return { access: isSubscribed ? await accessOf(ctx, of.paywall, address) : of.access, isNotified: !isSubscribed }
  })
}
