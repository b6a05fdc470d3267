/** `/api/subscriptions`: a wallet signs in, sees its subscriptions, and cancels or resumes them. */
import { type Door, offerNonce, proveWallet, useProof } from "../../account/identity/prove-wallet.ts"
import { NoBody, NonceAnswer } from "../../account/identity/schema.ts"
import { SUBSCRIBERS, signToken, TOKEN_TYPES } from "../../account/identity/use-signing-keys.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, reading, type TxContext, wallTime } from "../../platform/context.ts"
import { callingWallet } from "../../platform/http/authenticate.ts"
import { Page } from "../../platform/http/schemas.ts"
import { inData, sendList } from "../../platform/http/send-lists.ts"
import { orEmptyBody, type Server } from "../../platform/http/server.ts"
import { cancelSubscription, resumeSubscription } from "./ask-subscription.ts"
import { sessionsOfSubscription } from "./queries.ts"
import {
  invoicesOf,
  invoiceToSubscriber,
  ownSubscription,
  shownToSubscriber,
  subscriptionsOf,
  walletOf,
  walletSubject,
} from "./read-subscriber.ts"
import {
  SubscriberInvoices,
  SubscriberNonce,
  SubscriberSignIn,
  SubscriberSubscription,
  SubscriberSubscriptions,
  SubscriberToken,
  SubscriptionId,
} from "./subscriber-schema.ts"

/** How long a subscriber stays signed in, in milliseconds. */
const TOKEN_MS = 15 * 60_000
const TOKEN_PATH = "/api/subscriptions/token"
const tags = ["subscribers"]

export function subscriberRoutes(app: Server, ctx: Context): void {
  signInRoutes(app, ctx)
  readRoutes(app, ctx)
  changeRoutes(app, ctx)
}

function signInRoutes(app: Server, ctx: Context): void {
  const door = (): Door => ({
    purpose: "subscriptions",
    resource: "",
    path: TOKEN_PATH,
    networks: ctx.chain.networks,
  })
  app.post(
    "/api/subscriptions/nonce",
    {
      schema: {
        operationId: "createSubscriberNonce",
        summary: "Issues the nonce for one sign-in, valid for ten minutes, and the message to sign",
        tags,
        body: SubscriberNonce,
        response: { 200: NonceAnswer },
      },
    },
    async request => {
      const address = checksummed(addressField("address", request.body.address))
      const offer = await offerNonce(ctx, door())
      return { ...offer, message: offer.message.replace("{address}", address) }
    },
  )

  app.post(
    TOKEN_PATH,
    {
      schema: {
        operationId: "signInSubscriber",
        summary: "Signs a wallet in to see and cancel its subscriptions, for a quarter of an hour",
        description:
          "The message (EIP-4361) names the domain of `BASE_URL`, the URI `<BASE_URL>/api/subscriptions/token`, a network of this service, the nonce, and the single resource `urn:sluice:subscriptions`. A wallet with a key sees its subscriptions on every network. A contract wallet (ERC-1271) sees only those on the network that the message names, because a contract at one address can have a different owner on each network.",
        tags,
        body: SubscriberSignIn,
        response: { 200: SubscriberToken },
      },
      config: { errors: ["SIGNATURE_REFUSED", "CHAIN_UNAVAILABLE"] },
    },
    async request => {
      const proof = await proveWallet(ctx, door(), request.body)
      await useProof(ctx, door(), proof)
      const address = checksummed(proof.address)
      const expiresAt = new Date(Math.floor((wallTime(ctx).getTime() + TOKEN_MS) / 1_000) * 1_000)
      const sub = walletSubject(proof.address, proof.isByKey ? undefined : proof.network.chainId)
      const token = { typ: TOKEN_TYPES.subscriber, aud: SUBSCRIBERS, sub, expiresAt }
      return { accessToken: await signToken(ctx, token), expiresAt: expiresAt.toISOString(), address }
    },
  )
}

function readRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/subscriptions",
    {
      schema: {
        operationId: "listOwnSubscriptions",
        summary: "The wallet's subscriptions, with the invoice that can be paid",
        description: "A subscription belongs to the wallet that paid first, whoever pays later.",
        tags,
        querystring: Page,
        response: { 200: SubscriberSubscriptions },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const source = subscriptionsOf(read, walletOf(callingWallet(request)))
      return await sendList(read, reply, request.query, source, rows => shownToSubscriber(read, rows), inData)
    },
  )

  app.get(
    "/api/subscriptions/:id/invoices",
    {
      schema: {
        operationId: "listOwnInvoices",
        summary: "The invoices of one of the wallet's subscriptions, with their receipts",
        tags,
        params: SubscriptionId,
        querystring: Page,
        response: { 200: SubscriberInvoices },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const { id, chain_id } = await ownSubscription(read, walletOf(callingWallet(request)), request.params.id)
      const { decimals } = networkOf(read.chain, chain_id).token
      const formatted = (rows: Parameters<typeof invoiceToSubscriber>[2][]) =>
        rows.map(row => invoiceToSubscriber(read, decimals, row))
      return await sendList(read, reply, request.query, invoicesOf(read, id), formatted, inData)
    },
  )
}

function changeRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/subscriptions/:id/cancel",
    {
      schema: {
        operationId: "cancelOwnSubscription",
        summary: "Cancels a subscription at the end of the paid period",
        description:
          "Until then `resume` can undo it. An open invoice is closed, unless its payment is in progress. If the paid period has ended, the cancellation takes effect immediately.",
        tags,
        params: SubscriptionId,
        body: NoBody,
        response: { 200: SubscriberSubscription },
      },
      config: { errors: ["INVALID_OPERATION"] },
      preValidation: orEmptyBody,
    },
    async request =>
      await changed(ctx, walletOf(callingWallet(request)), request.params.id, (ctx, { id, payer }) =>
        cancelSubscription(ctx, { payer }, id, "period_end"),
      ),
  )

  app.post(
    "/api/subscriptions/:id/resume",
    {
      schema: {
        operationId: "resumeOwnSubscription",
        summary: "Keeps a subscription that would end with the paid period",
        description: "If the merchant paused a subscription, only the merchant can resume it.",
        tags,
        params: SubscriptionId,
        body: NoBody,
        response: { 200: SubscriberSubscription },
      },
      config: { errors: ["INVALID_OPERATION"] },
      preValidation: orEmptyBody,
    },
    async request =>
      await changed(ctx, walletOf(callingWallet(request)), request.params.id, (ctx, { id, payer }) =>
        resumeSubscription(ctx, { payer }, id),
      ),
  )
}

/** Changes one of the wallet's subscriptions and returns its new state. */
async function changed(
  ctx: Context,
  wallet: ReturnType<typeof walletOf>,
  id: string,
  change: (ctx: TxContext, subscription: { id: string; payer: string }) => Promise<unknown>,
): Promise<SubscriberSubscription> {
  const [shown] = await inTransaction(ctx, async ctx => {
    await ownSubscription(ctx, wallet, id)
    await change(ctx, { id, payer: wallet.address })
    return await shownToSubscriber(ctx, [await ownSubscription(ctx, wallet, id)])
  })
  if (!shown) throw new Error("a subscription is not there after it was changed")
  await ctx.wakes.wake("payments", await sessionsOfSubscription(ctx, id))
  return shown
}
