/**
 * The receiving addresses of proxy bundles. A bundle is paid at its newest address. Like a paywall's address
 * (`move-deposits.ts`), this address is replaced when the payout address, approver or split changes, and before anyone
 * may recover the money there.
 */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { partiesOf } from "./find-parties.ts"
import { COOLING_MS, makeStandingDeposit, type Parties } from "./make-deposits.ts"

/** Returns the address where a bundle is paid now. Throws if the bundle has no address. */
export const bundleDeposit = (ctx: TxContext, bundleId: string): Promise<Row<"deposits">> =>
  ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", bundleId)
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirstOrThrow()

/** Gives a bundle, whose row is locked, a new receiving address with the bundle's current parties and this change. */
export async function moveBundleDeposit(
  ctx: TxContext,
  network: NetworkInfo,
  bundleId: string,
  change: Partial<Parties> = {},
): Promise<void> {
  await ctx.db
    .updateTable("deposits")
    .set({ watched_until: new Date(ctx.now().getTime() + COOLING_MS) })
    .where("id", "=", (await bundleDeposit(ctx, bundleId)).id)
    .execute()
  const parties = { ...(await partiesOf(ctx, network, bundleId, "bundles")), ...change }
  await makeStandingDeposit(ctx, network, bundleId, parties)
}
