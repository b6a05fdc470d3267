/**
 * Limits what the payouts of one merchant cost us in 24 hours. We pay the gas, so without a limit anyone could make us
 * move the same few cents back and forth. The payouts of a merchant over the limit are held until enough of the window
 * has passed. Other merchants' payouts continue.
 */
import { type RawBuilder, sql } from "kysely"
import { type NetworkInfo, networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { kindOf, kindsThat, numberByKind } from "../../platform/db/by-kind.ts"
import type { PayoutKind } from "../../platform/db/payout-kinds.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount, parseAmount } from "../../platform/money/amount.ts"
import { mostOf } from "./count-in-flight.ts"

const WINDOW_MS = 24 * 3_600_000
const MINUTE_MS = 60_000
/**
 * The longest hold, even if the window stays full for longer, because fees may fall, and an operator may raise the
 * budget.
 */
const MAX_WAIT_MS = 60 * MINUTE_MS
/** The most payouts that one statement holds, because other merchants' payouts wait for the statement. */
const HELD_AT_ONCE = 1_000
/** How many of a merchant's held payouts become due again per minute, so that thousands do not become due together. */
const RECHECKS_PER_MINUTE = 500n
/** The most merchants over their budgets that one turn finds. The next turn finds the other merchants. */
const MERCHANTS_PER_TURN = 64
const ETHER_DECIMALS = 18
/** The columns of a payout that decide for which budgets its gas counts. */
type Charged = Pick<Row<"payouts">, "kind" | "chain_id" | "token" | "amount">

/** Returns how many times the gas of a kind counts toward the share of relays that strangers cause. */
export const timesInHalf = ({ budget, gasTimes }: PayoutKind): bigint => (budget === "half" ? gasTimes : 0n)

/** SQL: {@link timesInHalf}, for rows `i`. */
export const timesOf = (): RawBuilder<bigint> => numberByKind(timesInHalf)
const cheapTimesOf = (ctx: TxContext) =>
  sql<bigint>`(case when i.kind in ${kindsThat(kind => kind.budget !== "by_amount")} then ${timesOf()}
    when ${smallOf(ctx, sql.ref("i"))} then 1 else 0 end)`

/** SQL: whether a payout counts toward its merchant's budget. */
const counts = () => sql<boolean>`kind not in ${kindsThat(kind => kind.budget === "free")}`

/** A merchant's gas cost in the last 24 hours, and the possible cost of its payouts in flight, in wei. */
interface Spent {
  past: bigint
  inFlight: bigint
  /** The past and in-flight cost of relays that strangers cause. Reservations count twice. */
  relays: bigint
  /** The past and in-flight cost of these relays and of small payouts. */
  cheap: bigint
}

/** What is left of a budget, in wei: for everything, for cheap calls, and for relays that strangers cause. */
interface Room {
  all: bigint
  cheap: bigint
  relays: bigint
}

/**
 * Relays that strangers cause may use half of a budget, and three quarters together with small payouts. Both cost a
 * stranger little, for example a checkout of 0.01. The last quarter is for captures, refunds and payouts that are worth
 * more than they cost.
 */
function roomFor(limit: bigint, { past, inFlight, relays, cheap }: Spent): Room {
  const all = limit - past - inFlight
  const room = least(all, (limit * 3n) / 4n - cheap)
  return { all, cheap: room, relays: least(room, limit / 2n - relays) }
}

const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)

/**
 * SQL: whether a payout row `i` is small: below `SMALL_PAYOUT` in the settlement token, or in any other token, because
 * the value of other tokens is unknown.
 */
export const smallOf = (ctx: TxContext, i: RawBuilder<unknown>): RawBuilder<boolean> => {
  const large = ctx.chain.networks.map(
    network =>
      sql`(${i}.chain_id = ${network.chainId} and ${i}.token = ${network.token.address} and ${i}.amount >= ${smallAmount(ctx, network)})`,
  )
  return large.length === 0 ? sql<boolean>`true` : sql<boolean>`not (${sql.join(large, sql` or `)})`
}

const smallAmount = (ctx: TxContext, { token }: NetworkInfo): bigint =>
  parseAmount(ctx.settings.smallPayout, token.decimals)

/** Whether a payout that was already read is small. */
function isSmall(ctx: TxContext, row: Pick<Row<"payouts">, "chain_id" | "token" | "amount">): boolean {
  const network = networkOf(ctx.chain, row.chain_id)
  return row.token !== network.token.address || row.amount < smallAmount(ctx, network)
}

/** The merchants to leave out, either with all their due payouts or only with the small ones. */
export interface Except {
  merchants: readonly string[]
  small: readonly string[]
}

/**
 * Reads what these merchants spent. Payouts in flight count with the highest possible cost of their latest attempt. The
 * read takes no lock, so the payouts in flight may change meanwhile.
 */
async function spentBy(ctx: TxContext, merchantIds: readonly string[]): Promise<Map<string, Spent>> {
  const cheapTimes = cheapTimesOf(ctx)
  const { rows } = await sql<{ id: string } & Spent>`
    select m.id, ended.wei as past, open.wei as "inFlight", ended.relays + open.relays as relays,
      ended.cheap + open.cheap as cheap from merchants m
    cross join lateral (select coalesce(sum(gas_cost), 0)::numeric(78,0) as wei,
        coalesce(sum(gas_cost * ${timesOf()}), 0)::numeric(78,0) as relays,
        coalesce(sum(gas_cost * ${cheapTimes}), 0)::numeric(78,0) as cheap from payouts i
      where i.merchant_id = m.id and i.${counts()} and i.gas_cost is not null
        and i.gas_cost_at > ${windowStart(ctx)}) ended
    cross join lateral (select coalesce(sum(most), 0)::numeric(78,0) as wei,
        coalesce(sum(most * times), 0)::numeric(78,0) as relays,
        coalesce(sum(most * cheap_times), 0)::numeric(78,0) as cheap from (
          select ${timesOf()} as times, ${cheapTimes} as cheap_times, ${mostOf} as most
          from payouts i join transaction_attempts a on a.payout_id = i.id
          where i.merchant_id = m.id and i.${counts()} and i.state in ('assigned', 'mined') and i.gas_cost is null
            and i.batch_id is null
            and not exists (select from transaction_attempts b where b.payout_id = i.id and b.n > a.n)) each) open
    where m.id in (${sql.join([...merchantIds])})`.execute(ctx.db)
  return new Map(rows.map(({ id, ...spent }) => [id, spent]))
}

const windowStart = (ctx: TxContext): Date => new Date(ctx.now().getTime() - WINDOW_MS)

/**
 * Returns the due payouts of merchants whose budgets have room for `most` wei. Fills the gaps from `dueExcept`, which
 * returns the due payouts without {@link Except}. Payouts of merchants over their budgets are held, and `held` is their
 * number. This function only avoids needless screening and simulation, because {@link lockBudgets} decides.
 */
export async function withinBudgets(
  ctx: Context,
  wallet: Row<"wallets">,
  due: Row<"payouts">[],
  most: bigint,
  dueExcept: (except: Except) => Promise<Row<"payouts">[]>,
): Promise<{ due: Row<"payouts">[]; held: number }> {
  if (ctx.settings.gasBudget === 0n) return { due, held: 0 }
  const over = new Set<string>()
  const overSmall = new Set<string>()
  // Payouts of kinds that no budget covers never wait for a budget.
  const free = due.filter(row => kindOf(row).budget === "free")
  let payable = due.filter(row => kindOf(row).budget !== "free")
  let held = 0
  while (payable.length > 0) {
    const spent = await spentBy(ctx, [...new Set(payable.map(row => row.merchant_id))])
    const withSmall = new Set(payable.filter(row => isSmall(ctx, row)).map(row => row.merchant_id))
    let found = 0
    for (const [merchantId, before] of spent) {
      const room = roomFor(ctx.settings.gasBudget, before)
      const smallOnly = room.all >= most
      if (smallOnly && (room.cheap >= most || !withSmall.has(merchantId))) continue
      found++
      ;(smallOnly ? overSmall : over).add(merchantId)
      const excess = most - (smallOnly ? room.cheap : room.all)
      held += await holdDue(ctx, wallet, merchantId, { spent: before.past + before.inFlight, excess, smallOnly })
    }
    if (found === 0) break
    payable =
      over.size + overSmall.size < MERCHANTS_PER_TURN
        ? (await dueExcept({ merchants: [...over], small: [...overSmall] })).filter(
            row => !free.some(({ id }) => id === row.id),
          )
        : []
  }
  return { due: [...free, ...payable], held }
}

/**
 * Returns the due calls of the relay lane, without the captures and refunds of merchants whose budgets have no room.
 * All these captures and refunds are held before any call is simulated, so that a thousand held captures of one
 * merchant can't delay a buyer.
 */
export async function ownCallsWithinBudgets(
  ctx: Context,
  wallet: Row<"wallets">,
  due: Row<"payouts">[],
  most: bigint,
  dueAgain: (except: Except) => Promise<Row<"payouts">[]>,
): Promise<{ due: Row<"payouts">[]; held: number }> {
  if (ctx.settings.gasBudget === 0n) return { due, held: 0 }
  const over = new Set<string>()
  const isOver = (row: Row<"payouts">) => isOwn(row) && over.has(row.merchant_id)
  let payable = due
  let held = 0
  for (;;) {
    const asked = new Set(payable.flatMap(row => (isOwn(row) ? [row.merchant_id] : [])))
    const spent = asked.size > 0 ? await spentBy(ctx, [...asked]) : new Map<string, Spent>()
    const full = [...spent].flatMap(([id, each]) => (roomFor(ctx.settings.gasBudget, each).all < most ? [id] : []))
    if (full.length === 0) return { due: payable, held }
    for (const merchantId of full) {
      over.add(merchantId)
      held += await holdOwnCalls(ctx, wallet, merchantId)
    }
    const next = over.size < MERCHANTS_PER_TURN ? await dueAgain({ merchants: [], small: [] }) : payable
    payable = next.filter(row => !isOver(row))
  }
}

/** Whether the merchant's own decision causes the call, so that only the merchant's whole budget limits it. */
const isOwn = (row: Pick<Row<"payouts">, "kind">): boolean => kindOf(row).budget === "all"

/**
 * Holds a merchant's due captures and refunds, each for at most five minutes and at most a quarter of the time until
 * its deadline. Returns how many were held.
 */
async function holdOwnCalls(ctx: Context, wallet: Row<"wallets">, merchantId: string): Promise<number> {
  const now = ctx.now()
  const held = await sql`
    update payouts set state = 'held', held_reason = 'gas_budget', updated_at = ${now},
      held_detail = 'the merchant''s gas budget of a day is spent',
      run_at = ${now}::timestamptz + greatest(interval '1 second', least(interval '5 minutes', (relay_by - ${now}) / 4))
    where id in (select id from payouts where merchant_id = ${merchantId} and chain_id = ${wallet.chain_id}
      and lane = ${wallet.lane} and kind in ${kindsThat(kind => kind.budget === "all")} and state in ('queued', 'held') and run_at <= ${now}
      order by run_at limit ${HELD_AT_ONCE} for no key update skip locked)
    returning id`.execute(ctx.db)
  ctx.log.warn({ merchantId, calls: held.rows.length }, "captures and refunds are held: GAS_BUDGET is spent")
  return held.rows.length
}

/**
 * Makes the payouts that are held for a budget due now. Call this at startup, because the budget may have been raised.
 */
export async function recheckBudgets(ctx: Context): Promise<void> {
  await ctx.db
    .updateTable("payouts")
    .set({ run_at: ctx.now() })
    .where("held_reason", "=", "gas_budget")
    .where("state", "=", "held")
    .where("run_at", ">", ctx.now())
    .execute()
}

/**
 * Holds a merchant's due payouts, or only the small ones, until its window has room for another payout, but at most for
 * an hour. `excess` wei must leave the window first. Returns how many payouts the statement held.
 */
async function holdDue(
  ctx: Context,
  wallet: Row<"wallets">,
  merchantId: string,
  { spent, excess, smallOnly }: { spent: bigint; excess: bigint; smallOnly: boolean },
): Promise<number> {
  const now = ctx.now()
  const times = smallOnly ? cheapTimesOf(ctx) : sql`1`
  const small = smallOnly ? sql`and ${smallOf(ctx, sql.ref("payouts"))}` : sql``
  const free = await sql<{ at: Date }>`
    select gas_cost_at as at from (
      select gas_cost_at, sum(gas_cost * ${times}) over (order by gas_cost_at, id) as gone from payouts i
      where merchant_id = ${merchantId} and ${counts()} and gas_cost is not null
        and gas_cost_at > ${windowStart(ctx)}) as costs
    where gone >= ${excess} order by gas_cost_at limit 1`.execute(ctx.db)
  // If there is no row, payouts in flight use up the budget. Their actual cost will soon be lower than this maximum.
  const waitMs = (free.rows[0]?.at.getTime() ?? 0) + WINDOW_MS - now.getTime()
  const soonest = now.getTime() + Math.min(MAX_WAIT_MS, Math.max(MINUTE_MS, waitMs))
  // A payout that is short of money waits for its deposit's book, not for the budget.
  const n = await inTransaction(ctx, async ctx => {
    const { ahead } = await heldOf(ctx, merchantId)
    const runAt = new Date(soonest + minutes(ahead / RECHECKS_PER_MINUTE))
    const held = await sql`
      update payouts set state = 'held', held_reason = 'gas_budget', run_at = ${runAt}, updated_at = ${now},
        held_detail = 'the merchant''s gas budget of a day is spent'
      where id in (select id from payouts where merchant_id = ${merchantId} and chain_id = ${wallet.chain_id}
        and lane = ${wallet.lane} and state in ('queued', 'held') and ${counts()}
        and (reserved or held_reason is distinct from 'short') and run_at <= ${now} ${small}
        order by run_at limit ${HELD_AT_ONCE} for no key update skip locked)
      returning id`.execute(ctx.db)
    return held.rows.length
  })
  const facts = { merchantId, chainId: wallet.chain_id, payouts: n, smallOnly }
  ctx.log.warn({ ...facts, spent: formatAmount(spent, ETHER_DECIMALS) }, "payouts are held: GAS_BUDGET is spent")
  return n
}

const minutes = (n: bigint): number => Number.parseInt(`${n}`, 10) * MINUTE_MS

/** Reads how many of a merchant's payouts are held for its budget, and when the first of them becomes due again. */
async function heldOf(ctx: TxContext, merchantId: string): Promise<{ ahead: bigint; at: Date | null }> {
  return await ctx.db
    .selectFrom("payouts")
    .select([sql<bigint>`count(*)`.as("ahead"), sql<Date | null>`min(run_at)`.as("at")])
    .where("merchant_id", "=", merchantId)
    .where("state", "=", "held")
    .where("held_reason", "=", "gas_budget")
    .executeTakeFirstOrThrow()
}

/** What is left of several merchants' budgets, locked until the transaction ends. */
export interface Budgets {
  /**
   * Takes this many wei from the budget of the payout's merchant. If less is left for this kind of payout, takes
   * nothing and returns false.
   */
  take(payout: Charged & Pick<Row<"payouts">, "merchant_id">, wei: bigint): boolean
  /**
   * Whether some of the spent budget is the highest possible cost of transactions whose actual cost is not known yet.
   */
  isBusy(merchantId: string): boolean
}

/**
 * Locks merchants' budgets. Call this inside the transaction that signs. Transactions that sign for other wallets use
 * the same budgets, one after the other.
 */
export async function lockBudgets(ctx: TxContext, merchantIds: readonly string[]): Promise<Budgets> {
  const limit = ctx.settings.gasBudget
  if (limit === 0n || merchantIds.length === 0) return { take: () => true, isBusy: () => false }
  // The ids are sorted, so that two transactions that lock the same rows do not deadlock.
  const ids = [...new Set(merchantIds)].sort()
  await ctx.db
    .insertInto("gas_budgets")
    .values(ids.map(merchant_id => ({ merchant_id })))
    .onConflict(conflict => conflict.doNothing())
    .execute()
  await ctx.db
    .selectFrom("gas_budgets")
    .selectAll()
    .where("merchant_id", "in", ids)
    .orderBy("merchant_id")
    .forNoKeyUpdate()
    .execute()
  const spent = await spentBy(ctx, ids)
  const rooms = new Map([...spent].map(([id, each]) => [id, roomFor(limit, each)]))
  const busy = new Set([...spent].flatMap(([id, { inFlight }]) => (inFlight > 0n ? [id] : [])))
  return {
    isBusy: id => busy.has(id),
    take: (payout, wei) => {
      const kind = kindOf(payout)
      if (kind.budget === "free") return true
      const { all, cheap, relays } = rooms.get(payout.merchant_id) ?? { all: 0n, cheap: 0n, relays: 0n }
      const times = timesInHalf(kind)
      const small = kind.budget === "by_amount" && isSmall(ctx, payout)
      if (wei > all || (small && wei > cheap) || (times > 0n && wei * times > relays)) return false
      const asCheap = small ? wei : wei * times
      busy.add(payout.merchant_id)
      rooms.set(payout.merchant_id, { all: all - wei, cheap: cheap - asCheap, relays: relays - wei * times })
      return true
    },
  }
}

/**
 * Whether a merchant's budget has no room for another relay of this kind and gas, at the price of the last transaction.
 * The check refuses early, so that no buyer waits in vain, but {@link lockBudgets} decides.
 */
export async function relaysSpent(
  ctx: Context,
  merchantId: string,
  wallet: Pick<Row<"wallets">, "chain_id" | "address">,
  gas: bigint,
  kind: Charged["kind"],
): Promise<boolean> {
  if (ctx.settings.gasBudget === 0n) return false
  const spent = (await spentBy(ctx, [merchantId])).get(merchantId)
  const last = await ctx.db
    .selectFrom("transaction_attempts")
    .select(["max_fee", "data_fee"])
    .where("chain_id", "=", wallet.chain_id)
    .where("wallet", "=", wallet.address)
    .orderBy("nonce", "desc")
    .orderBy("n", "desc")
    .limit(1)
    .executeTakeFirst()
  const most = gas * (last?.max_fee ?? 1n) + (last?.data_fee ?? 0n)
  return spent !== undefined && roomFor(ctx.settings.gasBudget, spent).relays < most * timesInHalf(kindOf({ kind }))
}

/** Returns a merchant's budget and the part of it that is spent, in ether; null without a limit. */
export async function gasBudgetOf(ctx: Context, merchantId: string) {
  const limit = ctx.settings.gasBudget
  if (limit === 0n) return null
  const spent = await spentBy(ctx, [merchantId])
  const held = await heldOf(ctx, merchantId)
  const { past, inFlight } = spent.get(merchantId) ?? { past: 0n, inFlight: 0n }
  return {
    limit: formatAmount(limit, ETHER_DECIMALS),
    spent: formatAmount(past + inFlight, ETHER_DECIMALS),
    heldPayouts: Number.parseInt(`${held.ahead}`, 10),
    freesAt: held.at?.toISOString() ?? null,
  }
}
