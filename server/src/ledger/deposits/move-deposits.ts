/**
 * Versions: what price a paywall charged, when, and at which address. Every change of price, activity, split, payout
 * address or approver closes one version and opens the next, at the same instant.
 */
import { sql } from "kysely"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { isKind } from "../../platform/db/is-kind.ts"
import { partiesOf } from "./find-parties.ts"
import { bundleDeposit, moveBundleDeposit } from "./make-bundle-deposit.ts"
import { COOLING_MS, makeStandingDeposit, type Parties, RENEW_BEFORE_S } from "./make-deposits.ts"

/** Opens the first version of a new paywall, or the next version of a paywall whose row is locked. */
export async function openVersion(
  ctx: TxContext,
  paywallId: string,
  change: { price?: bigint; active?: boolean; depositId?: bigint },
): Promise<void> {
  // The clocks of processes differ, but a version must not end before it started.
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

/** Gives a paywall, whose row is locked, a new receiving address with the paywall's current parties and this change. */
export async function moveDeposit(
  ctx: TxContext,
  network: NetworkInfo,
  paywallId: string,
  change: Partial<Parties> & { price?: bigint; active?: boolean } = {},
): Promise<void> {
  const { price, active, ...parties } = change
  const now = { ...(await partiesOf(ctx, network, paywallId)), ...parties }
  const deposit = await makeStandingDeposit(ctx, network, paywallId, now)
  await openVersion(ctx, paywallId, {
    depositId: deposit.id,
    ...(price === undefined ? {} : { price }),
    ...(active === undefined ? {} : { active }),
  })
}

/**
 * The kinds of things that keep a receiving address while they are sold: how to find the current address of each, and
 * how to replace that address.
 */
const standing = {
  paywalls: {
    depositOf: async (ctx: TxContext, id: string) =>
      ctx.db
        .selectFrom("paywall_versions")
        .select("deposit_id as id")
        .where("paywall_id", "=", id)
        .where("until_at", "is", null)
        .executeTakeFirst(),
    move: moveDeposit,
  },
  bundles: { depositOf: bundleDeposit, move: moveBundleDeposit },
} as const
const kinds = ["paywalls", "bundles"] as const

/**
 * Gives all of a merchant's paywalls and bundles on a network new receiving addresses, according to the merchant's
 * current settings.
 */
export async function moveDeposits(ctx: TxContext, merchantId: string, network: NetworkInfo): Promise<void> {
  for (const kind of kinds) {
    const rows = await ctx.db
      .selectFrom(kind)
      .select("id")
      .where("merchant_id", "=", merchantId)
      .where("chain_id", "=", network.chainId)
      .orderBy("id")
      .forNoKeyUpdate()
      .execute()
    for (const { id } of rows) await standing[kind].move(ctx, network, id)
  }
}

/** An address that must be replaced, and what is sold there. */
interface DueDeposit {
  id: string
  chain_id: number
  deposit_id: bigint
}

/**
 * Replaces receiving addresses before they open for recovery. Also replaces addresses of factories that this version
 * does not serve, because this version could not move the money there. Returns how many addresses were due.
 */
export async function renewDeposits(ctx: Context): Promise<number> {
  const due = { paywalls: await duePaywalls(ctx), bundles: await dueBundles(ctx) }
  for (const kind of kinds)
    for (const { id, chain_id, deposit_id } of due[kind])
      await inTransaction(ctx, async ctx => {
        await ctx.db.selectFrom(kind).select("id").where("id", "=", id).forNoKeyUpdate().execute()
        const network = ctx.chain.networks.find(each => each.chainId === chain_id)
        // Another process may have replaced the address already.
        if (network && (await standing[kind].depositOf(ctx, id))?.id === deposit_id)
          await standing[kind].move(ctx, network, id)
      })
  return due.paywalls.length + due.bundles.length
}

/** Addresses that open for recovery before this time, in Unix seconds, are replaced. */
const openingBefore = (ctx: TxContext): bigint => BigInt(Math.floor(ctx.now().getTime() / 1_000) + RENEW_BEFORE_S)

async function duePaywalls(ctx: TxContext): Promise<DueDeposit[]> {
  const current = ctx.db
    .selectFrom("paywall_versions")
    .innerJoin("deposits", "deposits.id", "paywall_versions.deposit_id")
    .select(["paywall_versions.paywall_id as id", "deposits.chain_id", "deposits.id as deposit_id"])
    .where("until_at", "is", null)
    .where(isKind("deposits.resource_id", "pw"))
    .limit(1_000)
  const unserved = current.where(sql<boolean>`deposits.older_factory`)
  // Uses the index on the next opening time: checking each paywall took 443 ms with 150,000 paywalls.
  const opening = current.where("open_after_s", "<", openingBefore(ctx)).orderBy("open_after_s")
  const found = [...(await unserved.execute()), ...(await opening.execute())]
  return [...new Map(found.map(each => [each.id, each])).values()]
}

async function dueBundles(ctx: TxContext): Promise<DueDeposit[]> {
  const { rows } = await sql<DueDeposit>`
    select b.id, b.chain_id, d.id as deposit_id from bundles b join lateral (
      select id, open_after_s, older_factory from deposits where resource_id = b.id order by id desc limit 1) d on true
    where d.older_factory or d.open_after_s < ${openingBefore(ctx)} order by b.id limit 1000`.execute(ctx.db)
  return rows
}
