/** Whom the next receiving address of a merchant or paywall can pay: what its address will commit to. */
import type { Address } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Parties } from "./deposits.ts"

/** Who sends money back to payers: the merchant's payout wallet, by its signature, or the service. */
export type Approver = "wallet" | "service"

/** What a merchant's approver is that has not chosen one: a test must not need a wallet for every return. */
export const approverOr = (ctx: Pick<TxContext, "settings">, chosen: Approver | null): Approver =>
  chosen ?? (ctx.settings.mode === "live" ? "wallet" : "service")

/**
 * Who approves returns at new addresses of a merchant, as an address commits to it: `owner`, its payout address, or the factory
 * itself, which stands for whoever is the factory's operator.
 */
export async function approverOf(
  ctx: TxContext,
  network: NetworkInfo,
  merchantId: string,
  owner: Address,
): Promise<Address> {
  const { approver } = await ctx.db
    .selectFrom("merchants")
    .select("approver")
    .where("id", "=", merchantId)
    .executeTakeFirstOrThrow()
  return approverOr(ctx, approver) === "wallet" ? owner : network.depositFactory
}

/** The parties of a paywall as its merchant's settings and its split are now; throws where no payout address is set. */
export async function partiesOf(ctx: TxContext, network: NetworkInfo, paywallId: string): Promise<Parties> {
  const { merchant_id, owner, set_id } = await ctx.db
    .selectFrom("paywalls")
    .innerJoin("payout_addresses", join =>
      join
        .onRef("payout_addresses.merchant_id", "=", "paywalls.merchant_id")
        .on("payout_addresses.chain_id", "=", network.chainId),
    )
    .leftJoin("splits", "splits.id", "paywalls.split_id")
    .select(["paywalls.merchant_id", "payout_addresses.address as owner", "splits.set_id"])
    .where("paywalls.id", "=", paywallId)
    .executeTakeFirstOrThrow()
  return { owner, approver: await approverOf(ctx, network, merchant_id, owner), recipientSetId: set_id }
}
