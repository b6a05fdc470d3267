/** The routes of `/api/console/payments/refund`, which return money from the merchant's wallet to a payer. */
import { countSpend, lockCaps } from "../../account/identity/count-key-spends.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotentlyPrepared } from "../../platform/http/run-idempotently.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { makeRefund, prepareRefund } from "./make-refund.ts"
import { refundsShown, refundsWhere } from "./refund-queries.ts"
import { Refund, RefundCreate, RefundFilters, RefundId, RefundList } from "./refund-schema.ts"
import { withdrawRefund } from "./withdraw-call.ts"

const tags = ["transactions"]

export function refundRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/payments/refund",
    {
      schema: {
        operationId: "refundPayment",
        summary: "Refunds a captured escrow payment, in full or in part",
        description:
          "The money comes from the payout wallet that got the payment. This wallet must sign `approval.call`, one allowance for all its open refunds. The refund then continues, and `payment.refunded` is sent when it is mined. Open refunds reduce the refundable rest. Only one refund per wallet is in progress at a time.",
        tags,
        body: RefundCreate,
        response: { 201: Refund },
      },
      config: { errors: ["SESSION_NOT_FOUND", "INVALID_OPERATION", "DAILY_LIMIT_REACHED"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      reply.code(201)
      const made = await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: async () => await prepareRefund(ctx, merchantId, request.body),
        work: async (ctx, prepared) => {
          await lockCaps(ctx, request)
          const made = await makeRefund(ctx, merchantId, request.body, prepared)
          await countSpend(ctx, request, "refund", made.refundId)
          return made
        },
      })
      await ctx.wakes.wake("payouts")
      return made
    },
  )

  listRoute(app, ctx, {
    path: "/api/console/payments/refunds",
    operationId: "listRefunds",
    summary: "All refunds, newest first",
    tags,
    filter: RefundFilters.properties,
    answer: RefundList,
    source: (read, merchantId, { sessionId, status }) =>
      newestFirst(refundsWhere(read, { merchantId, sessionId, status }), orderedBy),
    show: (_, rows) => refundsShown(ctx, rows),
  })

  app.get(
    "/api/console/payments/refunds/:id",
    {
      schema: {
        operationId: "readRefund",
        summary: "One refund",
        tags,
        params: RefundId,
        response: { 200: Refund },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => {
      const { id } = request.params
      const rows = await refundsWhere(ctx, { merchantId: await callingMerchant(request), id }).execute()
      const [shown] = await refundsShown(ctx, rows)
      if (!shown) throw new ApiError("NOT_FOUND", undefined, "No refund has this id.")
      return shown
    },
  )

  app.delete(
    "/api/console/payments/refunds/:id",
    {
      schema: {
        operationId: "withdrawRefund",
        summary: "Withdraws a refund that is not signed yet",
        description:
          "The refund becomes `failed` and keeps its id; its amount can be refunded again. A refund that waits for your wallet's approval can always be withdrawn. An allowance that the wallet already gave stays: revoke it in the wallet.",
        tags,
        params: RefundId,
        response: { 200: Refund },
      },
      config: { errors: ["NOT_FOUND", "INVALID_OPERATION"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const withdrawn = await inTransaction(ctx, ctx => withdrawRefund(ctx, merchantId, request.params.id))
      await ctx.wakes.wake("payments", [withdrawn.sessionId])
      return withdrawn
    },
  )
}

const orderedBy = { at: "refunds.created_at", id: "refunds.id" }
