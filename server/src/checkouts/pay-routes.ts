/** `/api/pay`: what a payer's page asks of a checkout. Whoever has a session's id may. */
import { checksummed } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import { type Context, inTransaction } from "../context.ts"
import { warm } from "../deposits/deposits.ts"
import type { Server } from "../http/server.ts"
import { formatAmount } from "../money/amount.ts"
import { awaitEnd } from "../payments/await-end.ts"
import { authorizeSession } from "./authorize.ts"
import {
  LinkSession,
  LinkSessionCreate,
  PayAuthorize,
  PayAuthorized,
  PayConfirm,
  PayConfirmed,
  PayStatus,
  SessionId,
  Wait,
} from "./schema.ts"
import { confirmSession, createLinkSession, isOver, payTosOf, sessionOf, sessionUrl, shownOf } from "./sessions.ts"

const tags = ["payers"]

export function payRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/pay/sessions",
    {
      schema: {
        operationId: "startLinkCheckout",
        summary: "Starts a checkout of a payment link",
        tags,
        body: LinkSessionCreate,
        response: { 201: LinkSession },
      },
      config: { errors: ["LINK_NOT_FOUND", "LINK_UNAVAILABLE", "PAYOUT_ADDRESS_REQUIRED", "PAYMENTS_PAUSED"] },
    },
    async (request, reply) => {
      const session = await inTransaction(ctx, ctx => createLinkSession(ctx, request.body))
      const { token } = networkOf(ctx.chain, session.chain_id)
      const payTo = (await payTosOf(ctx, [session.id])).get(session.id)
      if (!payTo) throw new Error("a session has no receiving address")
      reply.code(201)
      return {
        sessionId: session.id,
        url: sessionUrl(ctx, session.id),
        payTo: checksummed(payTo.address),
        amount: formatAmount(session.amount, token.decimals),
        currency: session.currency,
        expiresAt: session.expires_at.toISOString(),
      }
    },
  )

  app.get(
    "/api/pay/status/:id",
    {
      schema: {
        operationId: "readPayStatus",
        summary: "How a checkout stands, and what is needed to pay it",
        description:
          "With `wait` the answer comes as soon as it is no longer `pending` or `verifying`; it counts once.",
        tags,
        params: SessionId,
        querystring: Wait,
        response: { 200: PayStatus },
      },
      config: { errors: ["SESSION_NOT_FOUND"] },
    },
    async (request, reply) => {
      const { id } = request.params
      if (!isOver(await sessionOf(ctx, id))) await warm(ctx, id)
      return await awaitEnd(ctx, reply, request.query.wait, () => statusOf(ctx, id), isOver)
    },
  )

  app.post(
    "/api/pay/confirm",
    {
      schema: {
        operationId: "confirmPayment",
        summary: "Tells the hash of a checkout's payment",
        description: "A hint that finds the transfer sooner: the checkout would be confirmed without it.",
        tags,
        body: PayConfirm,
        response: { 200: PayConfirmed },
      },
      config: {
        errors: [
          "INVALID_TX_HASH",
          "SANCTIONS_MATCH",
          "SESSION_NOT_FOUND",
          "SESSION_ALREADY_CONFIRMED",
          "SESSION_EXPIRED",
          "TXHASH_ALREADY_USED",
          "INVALID_OPERATION",
        ],
      },
    },
    async request => ({ ...(await confirmSession(ctx, request.body)), sessionId: request.body.sessionId }),
  )

  app.post(
    "/api/pay/authorize",
    {
      schema: {
        operationId: "authorizePayment",
        summary: "Pays a checkout by a signed authorization; the service pays the gas",
        description:
          "The payer signs `TransferWithAuthorization` (EIP-3009) in the token's EIP-712 domain, to `payTo` and of exactly " +
          "what is missing; the service carries it out. The same authorization again gets the same answer, and never a " +
          "second transfer. `validBefore` is at most two hours after the checkout ends; the checkout's end is a good choice. " +
          "`GET /api/pay/status/:id` says what became of it. An authorization whose transaction failed is public, and " +
          "anyone can carry it out until `validBefore`. So that nobody pays twice, the next one has the same `from` and " +
          "`nonce`, unless the failed one is cancelled on chain or its time is over.",
        tags,
        body: PayAuthorize,
        response: { 200: PayAuthorized },
      },
      config: {
        errors: [
          "SANCTIONS_MATCH",
          "SESSION_NOT_FOUND",
          "SESSION_ALREADY_CONFIRMED",
          "AUTHORIZATION_ALREADY_USED",
          "INVALID_OPERATION",
          "SESSION_EXPIRED",
          "LINK_UNAVAILABLE",
          "AUTHORIZATION_REFUSED",
          "CHAIN_UNAVAILABLE",
          "RELAY_UNAVAILABLE",
          "PAYMENTS_PAUSED",
        ],
      },
    },
    async request => ({ ...(await authorizeSession(ctx, request.body)), sessionId: request.body.sessionId }),
  )
}

async function statusOf(ctx: Context, id: string) {
  const session = await sessionOf(ctx, id)
  const payTo = (await payTosOf(ctx, [id])).get(id)
  if (!payTo) throw new Error("a session has no receiving address")
  const { confirmations } = networkOf(ctx.chain, session.chain_id)
  const newest = await ctx.db
    .selectFrom("transfers")
    .innerJoin("deposits", "deposits.id", "transfers.deposit_id")
    .innerJoin("cursors", "cursors.chain_id", "transfers.chain_id")
    .select(eb => eb(eb.ref("cursors.block_number"), "-", eb.ref("transfers.block_number")).as("above"))
    .where("deposits.session_id", "=", id)
    .where("transfers.state", "<>", "gone")
    .orderBy("transfers.block_number", "desc")
    .limit(1)
    .executeTakeFirst()
  const depth = newest === undefined ? 0n : BigInt(newest.above) + 1n
  const shown = shownOf(ctx, session, payTo)
  const { payTo: shownPayTo, ...withoutPayTo } = shown
  return {
    sessionId: id,
    ...withoutPayTo,
    ...(shown.paused ? {} : { payTo: shownPayTo }),
    redirectUrl: session.status === "confirmed" ? shown.redirectUrl : null,
    payerFields: session.payer_fields ?? [],
    confirmations: Number(depth < 0n ? 0n : depth),
    requiredConfirmations: Number(confirmations),
  }
}
