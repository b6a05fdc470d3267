/**
 * The receiving addresses of proxy bundles: the newest one is what a bundle is paid at. It is replaced like a paywall's, when the
 * payout address, the approver or the split changes, and before anyone may recover its money.
 */
import { sql } from "kysely"
import { type NetworkInfo, networkOf } from "../chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { COOLING_MS, makeDeposit, OPEN_AFTER_MS, type Parties, RENEW_BEFORE_S } from "./deposits.ts"
import { partiesOf } from "./parties.ts"

/** Creates a receiving address for a bundle, whose money can go to these parties alone. */
export const makeBundleDeposit = (
  ctx: TxContext,
  network: NetworkInfo,
  bundleId: string,
  parties: Parties,
): Promise<Row<"deposits">> => {
  const opensAt = new Date(ctx.now().getTime() + OPEN_AFTER_MS)
  return makeDeposit(ctx, network, { resourceId: bundleId, ...parties, opensAt, watchedMs: 0 })
}

/** The address that a bundle is paid at now; throws for one without any. */
export const bundleDeposit = (ctx: TxContext, bundleId: string): Promise<Row<"deposits">> =>
  ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", bundleId)
    .orderBy("id", "desc")
    .limit(1)
    .executeTakeFirstOrThrow()

/** Gives a bundle, whose row is locked, a new receiving address: its parties as they are now, but for what changes. */
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
  await makeBundleDeposit(ctx, network, bundleId, parties)
}

/** Gives all the merchant's bundles on a network new receiving addresses, by its settings as they are now. */
export async function moveBundleDeposits(ctx: TxContext, merchantId: string, network: NetworkInfo): Promise<void> {
  const bundles = await ctx.db
    .selectFrom("bundles")
    .select("id")
    .where("merchant_id", "=", merchantId)
    .where("chain_id", "=", network.chainId)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()
  for (const { id } of bundles) await moveBundleDeposit(ctx, network, id)
}

/** Replaces the addresses of bundles before they open for recovery; returns how many. */
export async function renewBundleDeposits(ctx: Context): Promise<number> {
  const before = Math.floor(ctx.now().getTime() / 1_000) + RENEW_BEFORE_S
  const { rows } = await sql<{ id: string; chain_id: number; deposit_id: bigint }>`
    select b.id, b.chain_id, d.id as deposit_id from bundles b
      join lateral (select id, open_after_s from deposits where resource_id = b.id order by id desc limit 1) d on true
    where d.open_after_s < ${before} order by b.id limit 1000`.execute(ctx.db)
  for (const { id, chain_id, deposit_id } of rows)
    await inTransaction(ctx, async ctx => {
      await ctx.db.selectFrom("bundles").select("id").where("id", "=", id).forNoKeyUpdate().execute()
      // Another process may have done it first.
      if ((await bundleDeposit(ctx, id)).id === deposit_id)
        await moveBundleDeposit(ctx, networkOf(ctx.chain, chain_id), id)
    })
  return rows.length
}
