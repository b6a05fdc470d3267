/**
 * The routes `/api/console/payments/capture` and `/void`, with which a merchant captures or releases reserved money.
 */
import { countSpend, lockCaps } from "../../account/identity/count-key-spends.ts"
import type { Context } from "../../platform/context.ts"
import { idempotently } from "../../platform/http/run-idempotently.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import { captureEscrow, type Decided, voidEscrow } from "./decide-escrow.ts"
import { Captured, CaptureOrder, Voided, VoidOrder } from "./schema.ts"

const tags = ["transactions"]
const errors = ["SESSION_NOT_FOUND", "INVALID_OPERATION", "DAILY_LIMIT_REACHED", "RELAY_UNAVAILABLE"] as const

export function escrowRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/payments/capture",
    {
      schema: {
        operationId: "capturePayment",
        summary: "Captures all or part of the reserved money",
        description:
          "The amount goes to your payout address. The checkout's `escrow.captured` includes it once its transaction is confirmed, and the first capture confirms the checkout. Captures add up. Money not captured before `escrow.captureBefore` goes back to the payer.",
        tags,
        body: CaptureOrder,
        response: { 200: Captured },
      },
      config: { errors: [...errors], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { body } = request
      const answer = await idempotently(ctx, request, reply, merchantId, async ctx => {
        await lockCaps(ctx, request)
        const { call, ...rest } = await captureEscrow(ctx, merchantId, body)
        await countSpend(ctx, request, "capture", call.id)
        return { captureId: payoutIdOf(call.id), sessionId: body.sessionId, ...begun(rest) }
      })
      await ctx.wakes.wake("payouts")
      return answer
    },
  )

  app.post(
    "/api/console/payments/void",
    {
      schema: {
        operationId: "voidPayment",
        summary: "Releases the rest of the reserved money to its payer",
        tags,
        body: VoidOrder,
        response: { 200: Voided },
      },
      config: { errors: [...errors], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { sessionId } = request.body
      const answer = await idempotently(ctx, request, reply, merchantId, async ctx => {
        await lockCaps(ctx, request)
        const { call, ...rest } = await voidEscrow(ctx, merchantId, sessionId)
        await countSpend(ctx, request, "void", call.id)
        return { voidId: payoutIdOf(call.id), sessionId, ...begun(rest) }
      })
      await ctx.wakes.wake("payouts")
      return answer
    },
  )
}

const begun = ({ amount }: Omit<Decided, "call">) => ({ amount, status: "pending" as const, txHash: null })
