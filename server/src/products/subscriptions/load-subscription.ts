/**
 * Reads and locks subscriptions with their invoices, as facts for the fold. Each kind of read is one statement for
 * all subscriptions.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { InvoiceFacts, SubscriptionFacts } from "./fold-subscription.ts"

/** A subscription that this transaction has locked. */
export interface Held {
  subscription: Row<"subscriptions">
  /** In order. */
  invoices: Row<"invoices">[]
  /** The session of the last invoice. All earlier sessions have ended for good. */
  session: Row<"checkout_sessions">
  /** Whether the session is locked too, so that it can be closed. */
  isSessionHeld: boolean
  /** Whether no reorg can remove the last invoice's payment. */
  isFinal: boolean
  /** The sender of most of the first payment, if the subscription starts now. */
  payer: Address | undefined
}

/**
 * Locks the session of a subscription's open invoice, and then the subscription. A settlement holds the session's
 * lock when a trigger makes the subscription due, so it takes the locks in this order too. Undefined if there is no
 * such subscription.
 */
export async function holdSubscription(ctx: TxContext, id: string): Promise<Held | undefined> {
  const sessions = await holdOpenSessions(ctx, [id])
  const query = ctx.db.selectFrom("subscriptions").selectAll().where("id", "=", id)
  const [held] = await readHeld(ctx, await query.forNoKeyUpdate().execute(), sessions)
  return held
}

/**
 * Locks due subscriptions, longest due first, and skips those that are locked. `only` restricts this to one
 * subscription.
 */
export async function lockDue(
  ctx: TxContext,
  { limit, only }: { limit: number; only: string | undefined },
): Promise<Row<"subscriptions">[]> {
  const chains = ctx.chain.networks.map(({ chainId }) => chainId)
  return await ctx.db
    .selectFrom("subscriptions")
    .selectAll()
    .where("run_at", "<=", ctx.now())
    .where("chain_id", "in", chains)
    .$if(only !== undefined, query => query.where("id", "=", only ?? ""))
    .orderBy("run_at")
    .orderBy("id")
    .limit(limit)
    .forNoKeyUpdate()
    .skipLocked()
    .execute()
}

/**
 * Returns those of these locked subscriptions whose open session is not locked elsewhere. The others are tried again
 * in a second.
 */
export async function holdFree(ctx: TxContext, locked: readonly Row<"subscriptions">[]): Promise<Held[]> {
  const ids = locked.map(({ id }) => id)
  const all = await readHeld(ctx, locked, await holdOpenSessions(ctx, ids, "skip locked"))
  const isFree = ({ isSessionHeld, invoices }: Held) => isSessionHeld || !isOpen(lastOf(invoices))
  const busy = all.filter(held => !isFree(held)).map(({ subscription }) => subscription.id)
  if (busy.length > 0) {
    const again = new Date(ctx.now().getTime() + BUSY_MS)
    await ctx.db.updateTable("subscriptions").set({ run_at: again }).where("id", "in", busy).execute()
  }
  return all.filter(isFree)
}

const BUSY_MS = 1_000

const isOpen = ({ paid_at, voided_at }: Row<"invoices">): boolean => !paid_at && !voided_at

/** The last invoice. Every subscription has at least one. */
export function lastOf(invoices: readonly Row<"invoices">[]): Row<"invoices"> {
  const last = invoices.at(-1)
  if (!last) throw new Error("a subscription has no invoice")
  return last
}

async function holdOpenSessions(ctx: TxContext, ids: readonly string[], wait = ""): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`select s.id from checkout_sessions s where s.id in (
      select session_id from invoices where subscription_id = any(${sqlArray("text", ids)})
        and paid_at is null and voided_at is null)
    for no key update ${sql.raw(wait)}`.execute(ctx.db)
  return new Set(rows.map(({ id }) => id))
}

async function readHeld(
  ctx: TxContext,
  subscriptions: readonly Row<"subscriptions">[],
  heldSessions: ReadonlySet<string>,
): Promise<Held[]> {
  if (subscriptions.length === 0) return []
  const ids = subscriptions.map(({ id }) => id)
  const rows = await ctx.db
    .selectFrom("invoices")
    .selectAll()
    .where(sql<boolean>`subscription_id = any(${sqlArray("text", ids)})`)
    .orderBy("subscription_id")
    .orderBy("sequence")
    .execute()
  const invoices = Map.groupBy(rows, row => row.subscription_id)
  const lasts = subscriptions.map(({ id }) => lastOf(invoices.get(id) ?? []).session_id)
  const sessions = await ctx.db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where(sql<boolean>`id = any(${sqlArray("text", lasts)})`)
    .execute()
  const byId = new Map(sessions.map(session => [session.id, session]))
  const confirmed = sessions.filter(({ status }) => status === "confirmed").map(({ id }) => id)
  const open = await reversible(ctx, confirmed)
  const beginning = new Set(subscriptions.filter(({ status }) => status === null).map(({ id }) => id))
  const first = rows.filter(each => beginning.has(each.subscription_id)).map(each => each.session_id)
  const payers = await payersOf(ctx, first)
  return subscriptions.map((subscription): Held => {
    const own = invoices.get(subscription.id) ?? []
    const session = byId.get(lastOf(own).session_id)
    if (!session) throw new Error("an invoice has no session")
    return {
      subscription,
      invoices: own,
      session,
      payer: payers.get(session.id),
      isSessionHeld: heldSessions.has(session.id),
      isFinal: session.status === "confirmed" && !open.has(session.id),
    }
  })
}

/** Returns those of these confirmed sessions whose payment a reorg can still remove. */
async function reversible(ctx: TxContext, sessionIds: readonly string[]): Promise<Set<string>> {
  if (sessionIds.length === 0) return new Set()
  const { rows } = await sql<{ id: string }>`select distinct p.resource_id as id from payments p
      join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
    where p.resource_id = any(${sqlArray("text", sessionIds)}) and p.status = 'granted' and not p.beside and t.state <> 'final'`.execute(
    ctx.db,
  )
  return new Set(rows.map(({ id }) => id))
}

/**
 * For each session, the address that sent most of its payment, or the earliest among equals. The last cent may come
 * from a stranger, who must not get the subscription for it.
 */
async function payersOf(ctx: TxContext, sessionIds: readonly string[]): Promise<Map<string, Address>> {
  if (sessionIds.length === 0) return new Map()
  const { rows } = await sql<{ id: string; payer: Address }>`
    select distinct on (p.resource_id) p.resource_id as id, t.from_address as payer from payments p
      join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
    where p.resource_id = any(${sqlArray("text", sessionIds)}) and p.status = 'granted' and not p.beside and t.state <> 'gone'
    group by p.resource_id, t.from_address
    order by p.resource_id, sum(t.value) desc, min((t.block_number, t.log_index)::text), t.from_address`.execute(ctx.db)
  return new Map(rows.map(({ id, payer }) => [id, payer]))
}

/** Whether a session can no longer be paid. Accepting a payment still confirms it. */
export const isEnded = ({ status }: Pick<Row<"checkout_sessions">, "status">): boolean =>
  status === "expired" || status === "failed"

/**
 * The facts for the fold; undefined if the subscription never started. `aheadMs`: how long before its period an
 * invoice is created.
 */
export function factsOf(
  { subscription, invoices, session, isFinal }: Held,
  aheadMs: number,
): SubscriptionFacts | undefined {
  const { product_id, canceled_at: canceledAt } = subscription
  if (!subscription.anchor) return undefined
  // Invoices after this one are for the current product, counted since the subscription moved there. A void invoice
  // bought nothing.
  const lastOfOther = invoices.findLastIndex(each => each.product_id !== product_id && !each.voided_at)
  // After a cancellation because of an unpaid invoice, dust on its way to the session changes nothing; only a payment
  // does.
  const isOver = isEnded(session) || subscription.cancel_reason === "unpaid"
  return {
    billing: { interval: subscription.billing_interval, count: subscription.billing_count },
    anchor: subscription.anchor,
    maxPeriods: subscription.max_periods,
    hasGrace: subscription.is_first,
    pausedAt: subscription.paused_at,
    canceledAt,
    cancelAtPeriodEnd: subscription.cancel_at_period_end,
    aheadMs,
    invoices: invoices.flatMap((invoice, i): InvoiceFacts[] => {
      const { period_start: periodStart, period_end: periodEnd, due_at: dueAt, paid_at: paidAt } = invoice
      if (!periodStart || !periodEnd) return []
      const isLast = invoice === invoices.at(-1)
      const { void_asked_at: closedAt } = invoice
      return [
        {
          periodStart,
          periodEnd,
          dueAt,
          paidAt,
          state: invoice.voided_at ? "void" : paidAt ? "paid" : isOver ? "ended" : "open",
          isFinal: isLast ? isFinal : true,
          isOfProduct: i > lastOfOther,
          wasUnpaidAtCancel: canceledAt !== null && closedAt !== null && closedAt >= canceledAt,
        },
      ]
    }),
  }
}
