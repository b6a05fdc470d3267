/** Finds the parties that a merchant's, paywall's or bundle's next receiving address will commit to. */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Parties } from "./make-deposits.ts"

/** Who approves returns: the merchant's payout wallet, with a signature, or the service. */
export type Approver = "wallet" | "service"

/**
 * Returns the approver, with a default if the merchant chose none. In test mode the default is the service, so that
 * tests need no wallet for each return.
 */
export const approverOr = (ctx: Pick<TxContext, "settings">, chosen: Approver | null): Approver =>
  chosen ?? (ctx.settings.mode === "live" ? "wallet" : "service")

/**
 * Returns the approver to which a merchant's new addresses commit. The approver is `owner`, which is the merchant's
 * payout address, or the factory, which stands for its current operator.
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
  return approverAddress(ctx, approver, owner, network.depositFactory)
}

/** Returns the approver to which a new address commits. `chosen` is the merchant's choice, or null without one. */
export const approverAddress = (ctx: TxContext, chosen: Approver | null, owner: Address, factory: Address): Address =>
  approverOr(ctx, chosen) === "wallet" ? owner : factory

/**
 * Returns the parties of a paywall or bundle, from the merchant's current settings and the current split of the paywall
 * or bundle. Throws if the merchant has set no payout address.
 */
export async function partiesOf(
  ctx: TxContext,
  network: NetworkInfo,
  id: string,
  table: "paywalls" | "bundles" = "paywalls",
): Promise<Parties> {
  const { rows } = await sql<{ merchant_id: string; owner: Address; set_id: bigint | null }>`
    select sold.merchant_id, a.address as owner, s.set_id from ${sql.table(table)} sold
      join payout_addresses a on a.merchant_id = sold.merchant_id and a.chain_id = ${network.chainId}
      left join splits s on s.id = sold.split_id
    where sold.id = ${id}`.execute(ctx.db)
  const [row] = rows
  if (!row) throw new Error(`${id} has no payout address on ${network.name}`)
  const { merchant_id, owner, set_id } = row
  return { owner, approver: await approverOf(ctx, network, merchant_id, owner), recipientSetId: set_id }
}

/**
 * Returns a function that maps a merchant and a network to the owner and approver of new addresses. The function
 * returns undefined if the merchant has no payout address on the network.
 */
export async function sellersOn(
  ctx: TxContext,
  merchantIds: readonly string[],
): Promise<(merchantId: string, network: NetworkInfo) => Pick<Parties, "owner" | "approver"> | undefined> {
  const rows = await ctx.db
    .selectFrom("payout_addresses")
    .innerJoin("merchants", "merchants.id", "payout_addresses.merchant_id")
    .select(["merchants.id", "merchants.approver", "payout_addresses.chain_id", "payout_addresses.address"])
    .where("merchants.id", "in", [...new Set(merchantIds)])
    .execute()
  const byMerchant = new Map(rows.map(row => [`${row.id} ${row.chain_id}`, row]))
  return (merchantId, { chainId, depositFactory }) => {
    const row = byMerchant.get(`${merchantId} ${chainId}`)
    return row && { owner: row.address, approver: approverAddress(ctx, row.approver, row.address, depositFactory) }
  }
}
