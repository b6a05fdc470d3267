/** Who has access to what until when: the fold of an address's grants, kept in one row that is also their lock. */
import type { Address } from "../chain/hex.ts"
import type { Context } from "../context.ts"
import { accessEnd } from "./grant.ts"

/** Holds the grants of (paywall, address) still until the transaction ends. */
export async function lockAccess(ctx: Context, paywallId: string, address: Address): Promise<void> {
  // An update, even of nothing, locks the row that is there; an insert locks the new one.
  await ctx.db
    .insertInto("access")
    .values({ paywall_id: paywallId, address })
    .onConflict(conflict => conflict.columns(["paywall_id", "address"]).doUpdateSet({ address }))
    .execute()
}

/** Folds the live grants again; call it under {@link lockAccess}, after every change to them. */
export async function foldAccess(ctx: Context, paywallId: string, address: Address): Promise<void> {
  const grants = await ctx.db
    .selectFrom("grants")
    .select(["granted_at as grantedAt", "duration_s as durationS", "tx_hash as txHash"])
    .where("paywall_id", "=", paywallId)
    .where("address", "=", address)
    .where("revoked_at", "is", null)
    .orderBy("granted_at")
    .orderBy("id")
    .execute()
  await ctx.db
    .updateTable("access")
    .set({ expires_at: accessEnd(grants), tx_hash: grants.at(-1)?.txHash ?? null })
    .where("paywall_id", "=", paywallId)
    .where("address", "=", address)
    .execute()
}
