/** `/api/console/payments/:id/shares`: the shares of a payment and their states. */
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { sharesWithStates } from "./queries.ts"
import { PaymentPath, ShareList } from "./schema.ts"

export function payoutRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/payments/:id/shares",
    {
      schema: {
        operationId: "listShares",
        summary: "The shares of a payment, in the order of its split; empty without a split",
        tags: ["splits"],
        params: PaymentPath,
        response: { 200: ShareList },
      },
      config: { errors: ["NOT_FOUND"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const payment = await ctx.db
        .selectFrom("payments")
        .select("id")
        .where("id", "=", request.params.id)
        .where("merchant_id", "=", merchantId)
        .executeTakeFirst()
      if (!payment) throw new ApiError("NOT_FOUND")
      const data = await sharesWithStates(ctx, payment.id)
      return { data, total: data.length }
    },
  )
}
