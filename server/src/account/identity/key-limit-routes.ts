/** `/api/console/settings/key-limits`: how much all API keys of a merchant may send back in a day. */
import { type Context, inTransaction, reading, type TxContext } from "../../platform/context.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { approvedByWallet } from "./check-wallet-lock.ts"
import { KeyLimits, KeyLimitsChange } from "./schema.ts"

const tags = ["settings"]
type Limits = { refundPerDay: number | null; returnPerDay: number | null }

export function keyLimitRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/settings/key-limits",
    {
      schema: {
        operationId: "readKeyLimits",
        summary: "How much all API keys together may send back per day",
        tags,
        response: { 200: KeyLimits },
      },
    },
    async request => await limitsOf(await reading(ctx), await callingMerchant(request)),
  )

  app.put(
    "/api/console/settings/key-limits",
    {
      schema: {
        operationId: "changeKeyLimits",
        summary: "Changes the given limits, starting with the next refund or return by a key",
        description:
          "Each key can have its own limits too. Refunds and returns by people do not count. With the wallet lock on, raising or removing a limit needs the payout wallet's signature.",
        tags,
        body: KeyLimitsChange,
        response: { 200: KeyLimits },
      },
      config: { walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const after = (before: Limits): Limits => ({ ...before, ...request.body })
      const approval = await approvedByWallet(ctx, request, merchantId, async ctx => {
        const before = await limitsOf(ctx, merchantId)
        if (!isRaised(before, after(before))) return undefined
        const words = { from: inWords(before), to: inWords(after(before)) }
        return { words: { action: "Change limits of API keys", subject: "all API keys", ...words } }
      })
      return await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        const limits = after(await limitsOf(ctx, merchantId))
        await ctx.db
          .updateTable("merchants")
          .set({ refund_per_day: limits.refundPerDay, return_per_day: limits.returnPerDay })
          .where("id", "=", merchantId)
          .execute()
        return limits
      })
    },
  )
}

async function limitsOf({ db }: Pick<TxContext, "db">, merchantId: string): Promise<Limits> {
  return await db
    .selectFrom("merchants")
    .select(["refund_per_day as refundPerDay", "return_per_day as returnPerDay"])
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
}

const isRaised = (before: Limits, after: Limits): boolean =>
  (["refundPerDay", "returnPerDay"] as const).some(
    name => (after[name] ?? Number.POSITIVE_INFINITY) > (before[name] ?? Number.POSITIVE_INFINITY),
  )

const inWords = ({ refundPerDay, returnPerDay }: Limits): string =>
  `Refunds per day: ${refundPerDay ?? "no limit"}; returns per day: ${returnPerDay ?? "no limit"}`
