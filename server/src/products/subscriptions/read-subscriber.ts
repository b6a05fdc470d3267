/** Reads what a subscriber sees: one wallet's subscriptions and invoices, without e-mail addresses and metadata. */

import { sql } from "kysely"
import type { Static } from "typebox"
import { receiptUrl } from "../../ledger/receipts/receipt-url.ts"
import { type Address, checksummed, parseAddress } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { MAX_VOIDED } from "./ask-subscription.ts"
import { invoiceUrl } from "./notify-subscription.ts"
import type { SubscriberInvoices, SubscriberSubscription } from "./subscriber-schema.ts"

/** A wallet that signed in. */
interface SignedWallet {
  address: Address
  /**
   * The network of a contract wallet. Undefined if the address's own key signed, because a key is valid on every
   * network.
   */
  chainId: number | undefined
}

/** The subject of a subscriber's token. Its network is 0 if the address's own key signed. */
export const walletSubject = (address: Address, chainId: number | undefined): string =>
  `eip155:${chainId ?? 0}:${checksummed(address)}`

/** The wallet that a token's subject names. */
export function walletOf(subject: string): SignedWallet {
  const [, chainId, text] = /^eip155:(\d+):(0x[0-9a-fA-F]{40})$/.exec(subject) ?? []
  const address = parseAddress(text)
  if (!address) throw new Error("a subscriber's token names no wallet")
  return { address, chainId: chainId === "0" ? undefined : Number(chainId) }
}

/** A subscription, with the names that are shown with it. */
type Shown = Row<"subscriptions"> & { merchant: string | null; product: string; price: bigint; currency: string }

/** The query for a wallet's subscriptions that have started. A contract wallet sees only those on its own network. */
const ownSubscriptions = (ctx: TxContext, { address, chainId }: SignedWallet) =>
  ctx.db
    .selectFrom("subscriptions")
    .innerJoin("products", "products.id", "subscriptions.product_id")
    .innerJoin("merchants", "merchants.id", "subscriptions.merchant_id")
    .selectAll("subscriptions")
    .select(["products.name as product", "products.price", "products.currency", "merchants.name as merchant"])
    .where("subscriptions.payer", "=", address)
    .where("subscriptions.status", "is not", null)
    .$if(chainId !== undefined, query => query.where("subscriptions.chain_id", "=", chainId ?? 0))

/** A wallet's subscriptions, newest first. */
export const subscriptionsOf = (ctx: TxContext, wallet: SignedWallet) =>
  newestFirst(ownSubscriptions(ctx, wallet), { at: "subscriptions.started_at", id: "subscriptions.id" })

/** One of a wallet's subscriptions; throws `NOT_FOUND` if it does not exist or belongs to another wallet. */
export async function ownSubscription(ctx: TxContext, wallet: SignedWallet, id: string): Promise<Shown> {
  const row = await ownSubscriptions(ctx, wallet).where("subscriptions.id", "=", id).executeTakeFirst()
  if (!row) throw new ApiError("NOT_FOUND")
  return row
}

/** Formats subscriptions for their subscriber. */
export async function shownToSubscriber(ctx: TxContext, rows: readonly Shown[]): Promise<SubscriberSubscription[]> {
  const ids = rows.map(({ id }) => id)
  if (ids.length === 0) return []
  const open = await openInvoices(ctx, ids)
  const paid = await paidPeriods(ctx, ids)
  const usedUp = await withoutResume(ctx, ids)
  return rows.map(row => {
    const { token, name: chain } = networkOf(ctx.chain, row.chain_id)
    const paidUntil = begun(row.paid_until).toISOString()
    const isLast = row.max_periods !== null && (paid.get(row.id) ?? 0) >= row.max_periods
    const isEnding = row.status !== "canceled" && (row.cancel_at_period_end || isLast)
    const invoice = row.cancel_reason === "unpaid" ? undefined : open.get(row.id)
    return {
      id: row.id,
      merchant: row.merchant ?? "",
      product: row.product,
      amount: formatAmount(row.price, token.decimals),
      currency: row.currency,
      chain,
      billingInterval: row.billing_interval,
      billingCount: row.billing_count,
      status: begun(row.status),
      startedAt: begun(row.started_at).toISOString(),
      paidUntil,
      accessUntil: begun(row.access_until).toISOString(),
      cancelAtPeriodEnd: row.cancel_at_period_end,
      canResume: row.status !== "canceled" && row.cancel_asked_by === "subscriber" && !usedUp.has(row.id),
      nextDueAt: row.status === "active" && !isEnding && !invoice ? paidUntil : null,
      endsAt: isEnding ? paidUntil : null,
      openInvoice: invoice ? invoiceOf(ctx, invoice, token.decimals) : null,
    }
  })
}

function begun<T>(value: T | null): T {
  if (value === null) throw new Error("a subscription that has not begun is shown")
  return value
}

const invoiceOf = (
  ctx: TxContext,
  { id, amount, currency, due_at }: Pick<Row<"invoices">, "id" | "amount" | "currency" | "due_at">,
  decimals: number,
) => ({
  id,
  url: invoiceUrl(ctx, id),
  amount: formatAmount(amount, decimals),
  currency,
  dueAt: due_at.toISOString(),
})

/** The invoices that can be paid now, by subscription. */
async function openInvoices(ctx: TxContext, ids: readonly string[]) {
  const rows = await ctx.db
    .selectFrom("invoices")
    .innerJoin("checkout_sessions", "checkout_sessions.id", "invoices.session_id")
    .select(["invoices.id", "subscription_id", "invoices.amount", "invoices.currency", "due_at"])
    .where("subscription_id", "in", ids)
    .where("paid_at", "is", null)
    .where("voided_at", "is", null)
    .where("checkout_sessions.status", "in", ["pending", "verifying"])
    .where(eb => eb.or([eb("void_asked_at", "is", null), eb("checkout_sessions.status", "=", "verifying")]))
    .execute()
  return new Map(rows.map(row => [row.subscription_id, row]))
}

/** The subscriptions with so many voided invoices that only the merchant can withdraw a cancellation. */
async function withoutResume(ctx: TxContext, ids: readonly string[]): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`select s.id from unnest(${sqlArray("text", ids)}) as s (id)
    cross join lateral (select voided_at, void_asked_by, period_start from invoices where subscription_id = s.id order by sequence desc limit ${MAX_VOIDED}) last
    group by s.id having count(*) filter (where last.voided_at is not null and last.void_asked_by = 'subscriber') = ${MAX_VOIDED}
      and count(distinct last.period_start) = 1`.execute(ctx.db)
  return new Set(rows.map(({ id }) => id))
}

/** How many periods of its current product each subscription has paid since it moved there. */
async function paidPeriods(ctx: TxContext, ids: readonly string[]): Promise<Map<string, number>> {
  const { rows } = await sql<{ id: string; paid: number }>`select s.id, count(*)::int as paid from subscriptions s
      join invoices i on i.subscription_id = s.id
    where s.id = any(${sqlArray("text", ids)}) and s.max_periods is not null and i.paid_at is not null
      and i.sequence > coalesce((select max(o.sequence) from invoices o
        where o.subscription_id = s.id and o.product_id <> s.product_id and o.voided_at is null), 0)
    group by s.id`.execute(ctx.db)
  return new Map(rows.map(({ id, paid }) => [id, paid]))
}

/** The invoices of one subscription, newest first. */
export const invoicesOf = (ctx: TxContext, subscriptionId: string) =>
  newestFirst(
    ctx.db
      .selectFrom("invoices")
      .innerJoin("checkout_sessions", "checkout_sessions.id", "invoices.session_id")
      .selectAll("invoices")
      .select("checkout_sessions.status")
      .where("subscription_id", "=", subscriptionId)
      .where("period_start", "is not", null),
    { at: "invoices.created_at", id: "invoices.id" },
  )

/** Formats an invoice for its subscriber. */
export function invoiceToSubscriber(
  ctx: TxContext,
  decimals: number,
  row: Row<"invoices"> & Pick<Row<"checkout_sessions">, "status">,
): Static<typeof SubscriberInvoices>["data"][number] {
  const { paid_at, voided_at, void_asked_at, session_id } = row
  const isOpen = row.status === "pending" || row.status === "verifying"
  const isVoid = voided_at !== null || (void_asked_at !== null && row.status === "pending")
  return {
    ...invoiceOf(ctx, row, decimals),
    status: paid_at !== null ? "paid" : isVoid ? "void" : isOpen ? "open" : "unpaid",
    periodStart: begun(row.period_start).toISOString(),
    periodEnd: begun(row.period_end).toISOString(),
    paidAt: paid_at === null ? null : paid_at.toISOString(),
    receiptUrl: paid_at === null ? null : receiptUrl(ctx, session_id),
  }
}
