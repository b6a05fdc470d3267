/** `/api/console/payments/capture` and `/void`: what a merchant does with reserved money. */
import { networkOf } from "../chain/networks.ts"
import type { Context, TxContext } from "../context.ts"
import { ApiError } from "../errors.ts"
import { idempotently } from "../http/idempotency.ts"
import { asWritten } from "../http/json.ts"
import { callingMerchant, type Server } from "../http/server.ts"
import { payoutIdOf } from "../ids.ts"
import { readAmount } from "../money/amount.ts"
import { captureEscrow, type Decided, voidEscrow } from "./decide-escrow.ts"
import { Captured, CaptureOrder, Voided, VoidOrder } from "./schema.ts"

const tags = ["transactions"]
const errors = ["SESSION_NOT_FOUND", "INVALID_OPERATION", "RELAY_UNAVAILABLE"] as const

export function escrowRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/payments/capture",
    {
      schema: {
        operationId: "capturePayment",
        summary: "Captures reserved money, all of it or a part",
        description:
          "The amount is on its way to your payout address; the checkout's `escrow.captured` has it once its transaction is confirmed, and the first capture confirms the checkout. Captures add up. What is not captured before `escrow.captureBefore` goes back to the payer.",
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
        const amount = await amountOf(ctx, merchantId, body)
        const { call, ...rest } = await captureEscrow(ctx, merchantId, body.sessionId, amount)
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
        summary: "Releases what is left of reserved money to its payer",
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
        const { call, ...rest } = await voidEscrow(ctx, merchantId, sessionId)
        return { voidId: payoutIdOf(call.id), sessionId, ...begun(rest) }
      })
      await ctx.wakes.wake("payouts")
      return answer
    },
  )
}

const begun = ({ amount }: Omit<Decided, "call">) => ({ amount, status: "pending" as const, txHash: null })

/** The amount that is asked for in base units; undefined for all that is left. */
async function amountOf(ctx: TxContext, merchantId: string, body: CaptureOrder): Promise<bigint | undefined> {
  if (body.amount === undefined) return undefined
  const session = await ctx.db
    .selectFrom("checkout_sessions")
    .select("chain_id")
    .where("id", "=", body.sessionId)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!session) throw new ApiError("SESSION_NOT_FOUND")
  const { token } = networkOf(ctx.chain, session.chain_id)
  const amount = readAmount("amount", asWritten(body, "amount"), token, ctx.settings.minAmount)
  if (typeof amount !== "bigint") throw new ApiError("VALIDATION_ERROR", [amount])
  return amount
}
