/** The time zone of a merchant: what a request's days are counted in if it names none. */
import type { TxContext } from "../../platform/context.ts"

/** Returns the merchant's time zone, or UTC if the merchant has set none. */
export async function zoneOf(ctx: TxContext, merchantId: string): Promise<string> {
  const { time_zone } = await ctx.db
    .selectFrom("merchants")
    .select("time_zone")
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  return time_zone ?? "UTC"
}
