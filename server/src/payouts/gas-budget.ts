/**
 * What the payouts of one merchant may cost us in a day. Gas is ours and what is paid out is the recipients', so without a
 * bound anyone could have us pay for moving the same few cents round and round. Over it a merchant's payouts are held until
 * enough of the last 24 hours is past; those of the others go on.
 */
import { sql } from "kysely"
import { type Context, inTransaction } from "../context.ts"
import type { Lane } from "../db/payout-rows.ts"
import type { Row } from "../db/schema.ts"
import { formatAmount } from "../money/amount.ts"
import { dataPartsOf } from "./evidence.ts"

const WINDOW_MS = 24 * 3_600_000
const MINUTE_MS = 60_000
/** However long the window is full: fees fall, and an operator may raise the budget. */
const MOST_WAIT_MS = 60 * MINUTE_MS
/** Held by one statement: the others' payouts wait for it. */
const HELD_AT_ONCE = 1_000
/** Of a merchant's held payouts so many are looked at again in a minute, so that the many don't come back together. */
const RECHECKS_A_MINUTE = 500n
/** Merchants over their budgets that are found in one turn; the next one finds the others. */
const MERCHANTS_A_TURN = 64
const ETHER_DECIMALS = 18
/** Of a budget relays may take this part: strangers cause them, and must not keep the merchant's payouts from going on. */
const RELAYS_PART = 2n

/** Wei that a merchant's payouts cost in the last 24 hours, and that those in flight may cost. */
interface Spent {
  past: bigint
  inFlight: bigint
  /** Both, of relays alone. */
  relays: bigint
}

/** Wei that are left of a budget for one lane. */
function roomFor(lane: Lane, limit: bigint, { past, inFlight, relays }: Spent): bigint {
  const [room, ofRelays] = [limit - past - inFlight, limit / RELAYS_PART - relays]
  return lane === "relay" && ofRelays < room ? ofRelays : room
}

/**
 * What these merchants spent; those not mined yet by the highest fee that is signed for them, and `dataFee` wei each. Without
 * a lock: what is in flight may change at this moment.
 */
async function spentBy(ctx: Context, merchantIds: readonly string[], dataFee: bigint): Promise<Map<string, Spent>> {
  const { rows } = await sql<{ id: string } & Spent>`
    select m.id, ended.wei as past, open.wei as "inFlight", ended.relays + open.relays as relays from merchants m
    cross join lateral (select coalesce(sum(gas_cost), 0)::numeric(78,0) as wei,
        coalesce(sum(gas_cost) filter (where lane = 'relay'), 0)::numeric(78,0) as relays from intents i
      where i.merchant_id = m.id and i.gas_cost is not null and i.gas_cost_at > ${windowStart(ctx)}) ended
    cross join lateral (select coalesce(sum(most), 0)::numeric(78,0) as wei,
        coalesce(sum(most) filter (where lane = 'relay'), 0)::numeric(78,0) as relays from (
          select i.lane, a.gas * a.max_fee + ${dataFee}::numeric * ${dataPartsOf} as most
          from intents i join attempts a on a.intent_id = i.id
          where i.merchant_id = m.id and i.state in ('assigned', 'mined') and i.gas_cost is null
            and not exists (select from attempts b where b.intent_id = i.id and b.n > a.n)) each) open
    where m.id in (${sql.join([...merchantIds])})`.execute(ctx.db)
  return new Map(rows.map(({ id, ...spent }) => [id, spent]))
}

const windowStart = (ctx: Context): Date => new Date(ctx.now().getTime() - WINDOW_MS)

/**
 * Of due intents those whose merchants can pay `most` wei for one more; for the others the next ones, by `dueExcept` (the
 * due intents of all but some merchants). Payouts of whoever is over are held on the way; answers how many. A first sieve,
 * so that no merchant's many are screened and tried in vain; {@link lockBudgets} decides.
 */
export async function withinBudgets(
  ctx: Context,
  wallet: Row<"wallets">,
  due: Row<"intents">[],
  most: bigint,
  dueExcept: (merchantIds: string[]) => Promise<Row<"intents">[]>,
): Promise<{ due: Row<"intents">[]; held: number }> {
  // Relays are few, and not held: who waits for one is told at once.
  if (ctx.settings.gasBudget === 0n || wallet.lane === "relay") return { due, held: 0 }
  const over = new Set<string>()
  let payable = due
  let held = 0
  while (payable.length > 0) {
    const spent = await spentBy(ctx, [...new Set(payable.map(row => row.merchant_id))], 0n)
    const found = [...spent].filter(([, { past, inFlight }]) => past + inFlight + most > ctx.settings.gasBudget)
    if (found.length === 0) break
    for (const [merchantId, before] of found) {
      over.add(merchantId)
      held += await holdDue(ctx, wallet, merchantId, before, most)
    }
    payable = over.size < MERCHANTS_A_TURN ? await dueExcept([...over]) : []
  }
  return { due: payable, held }
}

/** Holds a merchant's due intents, as many as one statement should, until its window has room for another, an hour at most. */
async function holdDue(
  ctx: Context,
  wallet: Row<"wallets">,
  merchantId: string,
  { past, inFlight }: Spent,
  most: bigint,
): Promise<number> {
  const now = ctx.now()
  const excess = past + inFlight + most - ctx.settings.gasBudget
  const free = await sql<{ at: Date }>`
    select gas_cost_at as at from (
      select gas_cost_at, sum(gas_cost) over (order by gas_cost_at, id) as gone from intents
      where merchant_id = ${merchantId} and gas_cost is not null and gas_cost_at > ${windowStart(ctx)}) as costs
    where gone >= ${excess} order by gas_cost_at limit 1`.execute(ctx.db)
  // None: it is what is in flight, which soon costs less than it might.
  const waitMs = (free.rows[0]?.at.getTime() ?? 0) + WINDOW_MS - now.getTime()
  const soonest = now.getTime() + Math.min(MOST_WAIT_MS, Math.max(MINUTE_MS, waitMs))
  // What is short waits for its book, not for this.
  const n = await inTransaction(ctx, async ctx => {
    const { ahead } = await heldOf(ctx, merchantId)
    const runAt = new Date(soonest + minutes(ahead / RECHECKS_A_MINUTE))
    const held = await sql`
      update intents set state = 'held', held_reason = 'gas_budget', run_at = ${runAt}, updated_at = ${now},
        held_detail = 'the merchant''s gas budget of a day is spent'
      where id in (select id from intents where merchant_id = ${merchantId} and chain_id = ${wallet.chain_id}
        and lane = ${wallet.lane} and state in ('queued', 'held')
        and (reserved or held_reason is distinct from 'short') and run_at <= ${now}
        order by run_at limit ${HELD_AT_ONCE} for no key update skip locked)
      returning id`.execute(ctx.db)
    return held.rows.length
  })
  const spent = formatAmount(past + inFlight, ETHER_DECIMALS)
  ctx.log.warn({ merchantId, chainId: wallet.chain_id, payouts: n, spent }, "payouts are held: GAS_BUDGET is spent")
  return n
}

const minutes = (n: bigint): number => Number.parseInt(`${n}`, 10) * MINUTE_MS

/** A merchant's payouts that wait for its budget: how many, and when the first is looked at again. */
async function heldOf(ctx: Context, merchantId: string): Promise<{ ahead: bigint; at: Date | null }> {
  return await ctx.db
    .selectFrom("intents")
    .select([sql<bigint>`count(*)`.as("ahead"), sql<Date | null>`min(run_at)`.as("at")])
    .where("merchant_id", "=", merchantId)
    .where("state", "=", "held")
    .where("held_reason", "=", "gas_budget")
    .executeTakeFirstOrThrow()
}

/** What is left of some merchants' budgets, held until the transaction ends. */
export interface Budgets {
  /** Takes this many wei of a merchant's; false, and nothing taken, when that is more than is left. */
  take(merchantId: string, wei: bigint): boolean
}

/**
 * Locks the budgets of merchants; call it inside the transaction that signs, which holds a wallet: those of other wallets
 * decide on the same budgets, one after the other.
 */
export async function lockBudgets(
  ctx: Context,
  lane: Lane,
  merchantIds: readonly string[],
  dataFee: bigint,
): Promise<Budgets> {
  const limit = ctx.settings.gasBudget
  if (limit === 0n || merchantIds.length === 0) return { take: () => true }
  // In order, so that two that lock the same never wait for each other in turn.
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
  const rooms = new Map([...(await spentBy(ctx, ids, dataFee))].map(([id, spent]) => [id, roomFor(lane, limit, spent)]))
  return {
    take: (merchantId, wei) => {
      const left = (rooms.get(merchantId) ?? 0n) - wei
      if (left < 0n) return false
      rooms.set(merchantId, left)
      return true
    },
  }
}

/**
 * Whether a merchant's relays have no room for one more of so much gas, at the price of the wallet's last transaction. A
 * first look, so that nobody is made to wait; {@link lockBudgets} decides.
 */
export async function relaysSpent(
  ctx: Context,
  merchantId: string,
  wallet: Pick<Row<"wallets">, "chain_id" | "address">,
  gas: bigint,
): Promise<boolean> {
  if (ctx.settings.gasBudget === 0n) return false
  const spent = (await spentBy(ctx, [merchantId], 0n)).get(merchantId)
  const last = await ctx.db
    .selectFrom("attempts")
    .select("max_fee")
    .where("chain_id", "=", wallet.chain_id)
    .where("wallet", "=", wallet.address)
    .orderBy("nonce", "desc")
    .orderBy("n", "desc")
    .limit(1)
    .executeTakeFirst()
  const most = gas * (last?.max_fee ?? 1n)
  return spent !== undefined && roomFor("relay", ctx.settings.gasBudget, spent) < most
}

/** How a merchant's budget stands, in ether; null where there is none. */
export async function gasBudgetOf(ctx: Context, merchantId: string) {
  const limit = ctx.settings.gasBudget
  if (limit === 0n) return null
  const [spent, held] = [await spentBy(ctx, [merchantId], 0n), await heldOf(ctx, merchantId)]
  const { past, inFlight } = spent.get(merchantId) ?? { past: 0n, inFlight: 0n, relays: 0n }
  return {
    limit: formatAmount(limit, ETHER_DECIMALS),
    spent: formatAmount(past + inFlight, ETHER_DECIMALS),
    heldPayouts: Number.parseInt(`${held.ahead}`, 10),
    freesAt: held.at?.toISOString() ?? null,
  }
}
