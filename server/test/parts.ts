/** Payouts beside the payments that they show: whatever happened to either, the parts add up to the payout. */
import type { TxContext } from "../src/platform/context.ts"
import { payoutIdOf } from "../src/platform/ids.ts"
import { partsOf, payoutsOf } from "../src/products/insight/list-payouts.ts"

const ALL = 1_000_000

/** What does not add up to its payout, to the base unit, in words. */
export async function wrongParts(ctx: TxContext): Promise<string[]> {
  const found: string[] = []
  for (const { id: merchantId } of await ctx.db.selectFrom("merchants").select("id").execute())
    for (const payout of await payoutsOf(ctx, merchantId, {}).read(undefined, ALL, 0)) {
      const parts = await (await partsOf(ctx, merchantId, payoutIdOf(payout.id))).read(undefined, ALL, 0)
      const sum = parts.reduce((all, { amount }) => all + amount, 0n)
      const isOne = parts.every(({ token, chain_id }) => token === payout.token && chain_id === payout.chain_id)
      if (sum !== payout.amount || !isOne)
        found.push(
          `the ${payout.state} ${payout.kind} ${payout.id} is ${payout.amount}, and its ${parts.length} parts are ${sum}`,
        )
    }
  return found
}
