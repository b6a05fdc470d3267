/**
 * Settlement, in one database transaction per group. Payments claim confirmed transfers and buy what was for sale.
 * Payments whose transfers a reorg removed are reversed. Money that pays for nothing waits for the merchant. The
 * differences between kinds of resources are in their {@link Sellable}.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import { sqlArray, sqlRows } from "../../platform/db/sql-array.ts"
import { failedShares, makeAllShares, makePayouts } from "../payouts/make-payouts.ts"
import { stopReturns } from "../payouts/make-returns.ts"
import { verifySoon } from "../scanner/queries.ts"
import { payersToWait } from "./check-money-there.ts"
import { coverReturns } from "./cover-returns.ts"
import { notifyReopened } from "./notify-waiting.ts"
import { screenedTogether, sendersOf } from "./screened-together.ts"
import type { SellingContext, SellingTx } from "./sellable.ts"
import {
  type Group,
  namesOf,
  type Part,
  type Plan,
  type Screened,
  type Sellable,
  type StandingPayment,
} from "./sellable.ts"
import { traceGroup } from "./trace-payment.ts"
import { againAfter } from "./waits.ts"
import { writeOpen } from "./write-exceptions.ts"
import { grantAgain, reverse, writePaid } from "./write-payments.ts"

/**
 * Settling one kind stops after this time, and continues in the next round. While settling runs, the scan finds no new
 * payments, and the round's lease could expire.
 */
const BUDGET_MS = 3_000
/** The minimum delay before a failed group is tried again; it is short, because a deadlock resolves immediately. */
const FAILED_MS = 5_000

/** Settles due groups on the network, and returns how many were due. A group that fails does not delay the others. */
export async function settleDue(ctx: SellingContext, network: Network): Promise<number> {
  // In most rounds nothing is due, and each kind's own query is expensive to plan. This check costs a fifth of one such
  // query.
  const { rows } = await sql<{ arrived: boolean; reopened: boolean }>`select exists (select from transfers
      where chain_id = ${network.chainId} and run_at <= ${ctx.now()}) as arrived,
    exists (select from payments where chain_id = ${network.chainId} and reopened) as reopened`.execute(ctx.db)
  let groups = 0
  for (const sellable of ctx.sells)
    if (rows[0]?.arrived || sellable.wake) groups += await settleKind(ctx, network, sellable)
  if (rows[0]?.reopened) await notifyReopened(ctx, network)
  return groups
}

async function settleKind(ctx: SellingContext, network: Network, sellable: Sellable): Promise<number> {
  const due = await sellable.due(ctx, network)
  if (due.groups.length === 0) return 0
  let { isMore } = due
  // Screening and balance checks may be slow, so the budget starts with the first part that is ready. At least one
  // group of a ready part is always settled. So each round makes progress, no matter how much is due.
  let until = Number.POSITIVE_INFINITY
  const isOver = () => ctx.signal.aborted || performance.now() > until
  // Each part is screened just before it is settled, so a flood of senders does not delay other buyers. Screening reads
  // a file or calls a contract, which must not happen inside a transaction.
  for (const part of screenedTogether(due.groups)) {
    if (isOver()) {
      isMore = true
      break
    }
    const [screened, waiting] = await Promise.all([
      screen(ctx, sendersOf(part), sellable.purpose),
      payersToWait(ctx, network, part),
    ])
    until = Math.min(until, performance.now() + BUDGET_MS)
    for (const [i, group] of part.entries()) {
      if (ctx.signal.aborted || (i > 0 && isOver())) isMore = true
      else
        isMore =
          (await trySettling(ctx, sellable, group, withWaiting(screened, waiting.get(group.resourceId)))) || isMore
    }
  }
  // The next part of a flood is settled in another round, which starts immediately. Groups of other buyers who paid
  // meanwhile come before that part.
  if (isMore) await verifySoon(ctx, network.chainId)
  await ctx.wakes.wake("payments", namesOf(sellable, due.groups))
  await ctx.wakes.wake("payouts")
  return due.groups.length
}

/** Treats these payers as if their screening had failed, so that their money waits. */
const withWaiting = (screened: Screened, payers: ReadonlySet<Address> = new Set()): Screened =>
  payers.size === 0 ? screened : new Map([...screened, ...[...payers].map(payer => [payer, "unknown"] as const)])

/**
 * Settles one group, and returns whether more of it can be settled immediately. Logs a failure and postpones the group.
 */
async function trySettling(
  ctx: SellingContext,
  sellable: Sellable,
  group: Group,
  screened: Screened,
): Promise<boolean> {
  try {
    const settleGroup = () => inTransaction(ctx, ctx => settle(ctx, sellable, group, screened))
    return (await traceGroup(ctx, sellable, group, settleGroup)).isMore
  } catch (error) {
    const { resourceId } = group
    ctx.log.error({ err: error, resourceId }, "settling failed and will be tried again")
    await putOff(ctx, sellable, group).catch(error => {
      ctx.log.warn({ err: error, resourceId }, "a resource that could not be settled could not be postponed either")
    })
    return false
  }
}

/** Postpones a failed group, so that it does not repeatedly take the turn of other groups. */
async function putOff(ctx: Context, sellable: Sellable, { resourceId, senders }: Group): Promise<void> {
  const isDue = sql`deposit_id in (select id from deposits where resource_id = ${resourceId}) and run_at <= ${ctx.now()}
    and (${sellable.paidOnce} or from_address = any(${sqlArray("text", senders)}))`
  const { rows } = await sql<{ since: Date | null }>`
    select max(greatest(created_at, reorged_at)) as since from transfers where ${isDue}`.execute(ctx.db)
  const at = againAfter(ctx.now(), rows[0]?.since ?? ctx.now(), FAILED_MS)
  await sql`update transfers set run_at = ${at} where ${isDue}`.execute(ctx.db)
  await sellable.wake?.(ctx, [], [resourceId], at)
}

/**
 * Settles one group. Call this inside a transaction. All parts of the group lose the money that a reorg removed before
 * anything is granted. Returns whether more of the group can be settled immediately, in another transaction.
 */
export async function settle(
  ctx: SellingTx,
  sellable: Sellable,
  group: Group,
  screened: Screened,
): Promise<{ isMore: boolean }> {
  const { parts, due } = await sellable.hold(ctx, group)
  for (const part of parts) await followChain(ctx, sellable, part)
  for (const part of parts) await coverReturns(ctx, part)
  const again = new Map<bigint, Date>()
  let isMore = false
  for (const part of parts) {
    const plan = await sellable.plan(ctx, part, screened)
    await apply(ctx, sellable, part, plan)
    for (const [id, at] of plan.again) again.set(id, at)
    isMore ||= plan.isMore
  }
  await setDue(ctx, due, again)
  return { isMore }
}

/**
 * Keeps the merchant's or the chain's decision as long as the money is there. A granted payment is reversed while some
 * of its money is gone, and granted again once all of it is sure. A payment whose money grew is reversed too, and the
 * plan in the same transaction counts its surplus. If the merchant has decided about the payment, the payment keeps the
 * extra money. If a reorg changes the money of a payment with an unsigned return, the return is cancelled.
 */
async function followChain(ctx: SellingTx, sellable: Sellable, part: Part): Promise<void> {
  const idsOf = (what: StandingPayment["status"]) =>
    part.standing.filter(({ status }) => status === what).map(({ id }) => id)
  const unmade = await failedShares(ctx, idsOf("granted"))
  await stopReturns(ctx, idsOf("returned"))
  for (const payment of part.standing) {
    const { id, status, amount, there, sure, grown = false } = payment
    if (status === "granted" && (there < amount || grown)) await reverse(ctx, sellable, part, payment)
    else if (status === "granted" && sure > amount) await takeMore(ctx, id, sure)
    // If a share failed while its transfer was gone, the share was never retried.
    else if (unmade.has(id) && sure === amount) await makeAllShares(ctx, id)
    if (status === "reversed" && sure >= amount) {
      await grantAgain(ctx, sellable, part, payment)
      // The payment came back with more money, and nothing else would settle the difference.
      if (sure > amount && !grown) await takeMore(ctx, id, sure)
    }
  }
}

async function takeMore(ctx: TxContext, id: string, amount: bigint): Promise<void> {
  await ctx.db.updateTable("payments").set({ amount, updated_at: ctx.now() }).where("id", "=", id).execute()
  await makePayouts(ctx, id)
}

async function apply(ctx: SellingTx, sellable: Sellable, part: Part, plan: Plan): Promise<void> {
  for (const payment of plan.reversed) await reverse(ctx, sellable, part, payment)
  const paid: string[] = []
  for (const each of plan.paid) paid.push(await writePaid(ctx, sellable, part, each))
  await writeOpen(ctx, sellable, part, plan)
  await sellable.finish(ctx, part, plan, paid)
}

/**
 * Makes the due transfers no longer due, except those in `again`. Marks as applied the transfers that a granted payment
 * of their sender claims. If a payment lost a part, its other transfers in `again` become due even if they were not.
 * Transfers of returned payments are not marked, because such a payment can reopen without its group's lock, perhaps in
 * a concurrent transaction.
 */
async function setDue(ctx: TxContext, due: readonly bigint[], again: ReadonlyMap<bigint, Date>): Promise<void> {
  const done = due.filter(id => !again.has(id))
  if (done.length > 0)
    await sql`/* named: end_due */ update transfers t set run_at = null, applied = exists (select from claims c join payments p on p.id = c.payment_id
        where c.transfer_id = t.id and p.status = 'granted' and p.payer = t.from_address)
      where t.id in (${sqlRows("bigint", done)}) and t.run_at <= ${ctx.now()}`.execute(ctx.db)
  if (again.size === 0) return
  const wasDue = new Set(due)
  const later = [...again].map(([id, at]) => ({ id: `${id}`, at, was_due: wasDue.has(id) }))
  await sql`update transfers t set run_at = later.at
    from (${rowsParameter(later, "id bigint, at timestamptz, was_due boolean")}) later
    where t.id = later.id and case when later.was_due then t.run_at <= ${ctx.now()} else t.run_at is null end`.execute(
    ctx.db,
  )
}
