/**
 * Versions: what a paywall asked for, when, and at which address. Every change of price, activity, split or payout
 * address, and of who approves returns, closes one version and opens the next, at the same instant.
 */
import { sql } from "kysely"
import type { NetworkInfo } from "../chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import { isKind } from "../db/is-kind.ts"
import type { Row } from "../db/schema.ts"
import { moveBundleDeposits, renewBundleDeposits } from "./bundle-deposits.ts"
import { COOLING_MS, makeDeposit, OPEN_AFTER_MS, type Parties, RENEW_BEFORE_S } from "./deposits.ts"
import { partiesOf } from "./parties.ts"

/** Opens the first version of a new paywall, or the next version of a paywall whose row is locked. */
export async function openVersion(
  ctx: TxContext,
  paywallId: string,
  change: { price?: bigint; active?: boolean; depositId?: bigint },
): Promise<void> {
  // The clocks of several processes differ, but a version never ends before it began.
  const last = await ctx.db
    .updateTable("paywall_versions")
    .set({ until_at: sql<Date>`greatest(from_at, ${ctx.now()}::timestamptz)` })
    .where("paywall_id", "=", paywallId)
    .where("until_at", "is", null)
    .returningAll()
    .executeTakeFirst()
  const now = last?.until_at ?? ctx.now()
  if (last)
    await ctx.db
      .updateTable("deposits")
      .set({ watched_until: new Date(now.getTime() + COOLING_MS) })
      .where("id", "=", last.deposit_id)
      .execute()
  const price = change.price ?? last?.price
  const depositId = change.depositId ?? last?.deposit_id
  if (price === undefined || depositId === undefined) throw new Error("a first version needs a price and a deposit")
  await ctx.db
    .insertInto("paywall_versions")
    .values({
      paywall_id: paywallId,
      n: (last?.n ?? 0) + 1,
      price,
      active: change.active ?? last?.active ?? true,
      deposit_id: depositId,
      from_at: now,
    })
    .execute()
}

/** Creates a receiving address for a paywall, whose money can go to these parties alone. */
export const makePaywallDeposit = (
  ctx: TxContext,
  network: NetworkInfo,
  paywallId: string,
  parties: Parties,
): Promise<Row<"deposits">> => {
  const opensAt = new Date(ctx.now().getTime() + OPEN_AFTER_MS)
  return makeDeposit(ctx, network, { resourceId: paywallId, ...parties, opensAt, watchedMs: 0 })
}

/** Gives a paywall, whose row is locked, a new receiving address: its parties as they are now, but for what changes. */
export async function moveDeposit(
  ctx: TxContext,
  network: NetworkInfo,
  paywallId: string,
  change: Partial<Parties> & { price?: bigint; active?: boolean } = {},
): Promise<void> {
  const { price, active, ...parties } = change
  const now = { ...(await partiesOf(ctx, network, paywallId)), ...parties }
  const deposit = await makePaywallDeposit(ctx, network, paywallId, now)
  await openVersion(ctx, paywallId, {
    ...{ depositId: deposit.id },
    ...(price === undefined ? {} : { price }),
    ...(active === undefined ? {} : { active }),
  })
}

/** Gives all the merchant's paywalls and bundles on a network new receiving addresses, by its settings as they are now. */
export async function moveDeposits(ctx: TxContext, merchantId: string, network: NetworkInfo): Promise<void> {
  const paywalls = await ctx.db
    .selectFrom("paywalls")
    .select("id")
    .where("merchant_id", "=", merchantId)
    .where("chain_id", "=", network.chainId)
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()
  for (const { id } of paywalls) await moveDeposit(ctx, network, id)
  await moveBundleDeposits(ctx, merchantId, network)
}

/**
 * Replaces receiving addresses before they open for recovery, and those of before the contracts that this version serves, whose
 * money it could not move; returns how many.
 */
export async function renewDeposits(ctx: Context): Promise<number> {
  const current = ctx.db
    .selectFrom("paywall_versions")
    .innerJoin("deposits", "deposits.id", "paywall_versions.deposit_id")
    .select(["paywall_versions.paywall_id", "deposits.chain_id", "deposits.id as depositId"])
    .where("until_at", "is", null)
    .where(isKind("deposits.resource_id", "pw"))
    .limit(1_000)
  const unserved = current.where(sql<boolean>`deposits.older_factory`)
  const before = BigInt(Math.floor(ctx.now().getTime() / 1_000) + RENEW_BEFORE_S)
  // Uses the index on the next opening time: checking each paywall took 443 ms with 150,000 of them.
  const opening = current.where("open_after_s", "<", before).orderBy("open_after_s")
  const found = [...(await unserved.execute()), ...(await opening.execute())]
  const due = [...new Map(found.map(each => [each.paywall_id, each])).values()]
  for (const { paywall_id, chain_id, depositId } of due)
    await inTransaction(ctx, async ctx => {
      await ctx.db.selectFrom("paywalls").select("id").where("id", "=", paywall_id).forNoKeyUpdate().execute()
      const open = await ctx.db
        .selectFrom("paywall_versions")
        .select("deposit_id")
        .where("paywall_id", "=", paywall_id)
        .where("until_at", "is", null)
        .executeTakeFirst()
      const network = ctx.chain.networks.find(each => each.chainId === chain_id)
      // Another process may have done it first.
      if (!network || open?.deposit_id !== depositId) return
      await moveDeposit(ctx, network, paywall_id)
    })
  return due.length + (await renewBundleDeposits(ctx))
}
