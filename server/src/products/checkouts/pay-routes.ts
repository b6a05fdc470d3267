/** `/api/pay`: the API of a payer's checkout page, for anyone who has the session's id. */
import { keepWatched } from "../../ledger/deposits/make-deposits.ts"
import { withPutAway } from "../../ledger/deposits/put-away.ts"
import { checksummed, parseHash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context } from "../../platform/context.ts"
import { invalid } from "../../platform/errors.ts"
import { awaitEnd, POLL_PAUSE_MS, polling } from "../../platform/http/await-end.ts"
import type { Server } from "../../platform/http/server.ts"
import type { Shared } from "../../platform/http/shared-reads.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { answerPayer } from "./answer-payer-info.ts"
import { authorizeSession } from "./authorize.ts"
import { createLinkSession } from "./create-session.ts"
import { readState, statusOf } from "./read-status.ts"
import {
  LinkSession,
  LinkSessionCreate,
  PayAuthorize,
  PayAuthorized,
  PayConfirm,
  PayConfirmed,
  PayerInfo,
  PayerInfoKept,
  PayStatus,
  SessionId,
  StatusQuery,
} from "./schema.ts"
import { isOver, sessionUrl } from "./show-session.ts"
import { confirmSession } from "./submit-hash.ts"

const tags = ["payers"]

export function payRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/pay/sessions",
    {
      schema: {
        operationId: "startLinkCheckout",
        summary: "Starts a checkout from a payment link",
        tags,
        body: LinkSessionCreate,
        response: { 201: LinkSession },
      },
      config: { errors: ["LINK_NOT_FOUND", "LINK_UNAVAILABLE", "PAYOUT_ADDRESS_REQUIRED", "PAYMENTS_PAUSED"] },
    },
    async (request, reply) => {
      const { session, payTo } = await createLinkSession(ctx, request.body)
      const { token } = networkOf(ctx.chain, session.chain_id)
      if (!payTo) throw new Error("a session has no receiving address")
      reply.code(201)
      return {
        sessionId: session.id,
        url: sessionUrl(ctx, session.id),
        payTo: checksummed(payTo),
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
        summary: "The status of a checkout, and everything needed to pay it",
        description:
          "With `wait`, the answer comes as soon as the checkout is no longer `pending` or `verifying`, or immediately if too many requests wait. The request counts once against the rate limit. With `txHash`, the answer also comes when that submission is refused. Anyone may submit a hash, so a refused hash does not change the checkout. While less than the amount has arrived, the checkout is `verifying` and `message` names the missing amount. After `expiresAt`, or after the merchant deletes the checkout, `message` asks for no money and `payTo` is left out. The status stays until all blocks up to then are read, usually for less than a minute. It then becomes `expired` with the exception `underpaid`, and the money that arrived waits for the merchant to accept or return it.",
        tags,
        params: SessionId,
        querystring: StatusQuery,
        response: { 200: PayStatus },
      },
      config: { errors: ["SESSION_NOT_FOUND"] },
    },
    async (request, reply) => {
      const { id } = request.params
      const { wait, txHash: text } = request.query
      const txHash = text === undefined ? undefined : parseHash(text)
      if (text !== undefined && !txHash)
        throw invalid("txHash", "must be a transaction hash: 0x and 64 hexadecimal digits")
      type State = Awaited<ReturnType<typeof statusOf>>
      let isWatchEnding = false
      const shared: Shared<State> = {
        key: ["checkout", id, txHash],
        names: [id],
        read: async () => {
          const [read, state] = await readState(ctx, id, txHash)
          isWatchEnding = state.isWatchEnding
          return await statusOf(read, state)
        },
        tend: async state => (isWatchEnding && !isOver(state) ? await keepWatched(ctx, id) : undefined),
        pauseMs: () => POLL_PAUSE_MS,
      }
      const hasNews = (state: State) => isOver(state) || (txHash !== undefined && state.submission?.status === "failed")
      return await awaitEnd(ctx, reply, shared, { ...polling(ctx, request), waitS: wait, isOver: hasNews })
    },
  )

  app.post(
    "/api/pay/confirm",
    {
      schema: {
        operationId: "confirmPayment",
        summary: "Submits the transaction hash of a checkout's payment",
        description:
          "A hint to find the transfer sooner; the checkout would be confirmed without it. `GET /api/pay/status/:id?txHash=` returns the result for the hash. A wrong hash leaves the checkout payable and emits no event. When its time runs out, a checkout ends as `failed` if only refused hashes were submitted, and as `expired` if none was submitted.",
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
    async ({ body }) => {
      const confirmed = await withPutAway(ctx, { ids: [body.sessionId] }, () => confirmSession(ctx, body))
      return { ...confirmed, sessionId: body.sessionId }
    },
  )

  app.post(
    "/api/pay/payer-info",
    {
      schema: {
        operationId: "answerPayerFields",
        summary: "Stores the payer's answers before the payment",
        description:
          "For payments that are not submitted as a hash; with a hash, send the answers to `POST /api/pay/confirm`. The newest answers count, until the checkout is confirmed.",
        tags,
        body: PayerInfo,
        response: { 200: PayerInfoKept },
      },
      config: { errors: ["SESSION_NOT_FOUND", "SESSION_ALREADY_CONFIRMED", "SESSION_EXPIRED"] },
    },
    async ({ body }) => await withPutAway(ctx, { ids: [body.sessionId] }, () => answerPayer(ctx, body)),
  )

  app.post(
    "/api/pay/authorize",
    {
      schema: {
        operationId: "authorizePayment",
        summary: "Pays a checkout with a signed authorization; the service pays the gas",
        description:
          "The payer signs `TransferWithAuthorization` (EIP-3009) in the token's EIP-712 domain, to `payTo` and for exactly " +
          "the missing amount; the service relays it. Sending the same authorization again returns the same answer and never " +
          "makes a second transfer. `validBefore` is at most two hours after the checkout ends; the checkout's end is a good choice. " +
          "`GET /api/pay/status/:id` returns the result. A failed authorization is public, and " +
          "anyone can submit it until `validBefore`. To prevent a double payment, the next authorization must have the same `from` and " +
          "`nonce`, unless the failed one was cancelled on chain or has expired. A checkout with `capture` other than `direct` needs a " +
          "`ReceiveWithAuthorization` with the fields that its status answer lists, and only this service can execute it.",
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
    async ({ body }) => {
      const authorized = await withPutAway(ctx, { ids: [body.sessionId] }, () => authorizeSession(ctx, body))
      return { ...authorized, sessionId: body.sessionId }
    },
  )
}
