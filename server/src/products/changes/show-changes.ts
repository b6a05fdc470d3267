/**
 * Builds change messages of at most 1 KB. Each contains the changed object as a row of the object's list, with that
 * list's field names. Large fields are left out, and so are fields that need more than a read by id.
 */
import { sql } from "kysely"
import { deliveryOf } from "../../account/webhooks/queries.ts"
import { transactionsById, transactionsOf } from "../../ledger/books/read-transactions.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { refundsWith, selectRefunds } from "../escrow/refund-queries.ts"
import { payoutsById, shownPayouts } from "../insight/list-payouts.ts"
import { invoicesById } from "../subscriptions/queries.ts"
import { shownInvoice, shownSubscription } from "../subscriptions/show-subscription.ts"
import type { Change } from "./queries.ts"

/** An object's row, and its merchant. */
interface Owned {
  id: string
  merchantId: string
  row: Record<string, unknown>
}

/** A change as its recipient sees it. */
export interface ShownChange {
  kind: Change["kind"]
  objectId: string
  at: string
  row: Record<string, unknown> | null
}

/** The largest row in bytes. With its id and framing, the message stays below 1 KB. */
const MAX_ROW_BYTES = 880
const MAX_TEXT = 120

/** Formats changes in order. The row is null if the object no longer exists, is not in its list, or does not fit. */
export async function shownChanges(ctx: TxContext, changes: readonly Change[]): Promise<ShownChange[]> {
  const rows = new Map<string, Record<string, unknown>>()
  for (const [kind, of] of Map.groupBy(changes, change => change.kind)) {
    const ids = [...new Set(of.map(({ objectId }) => objectId))]
    for (const { id, merchantId, row } of await readers[kind](ctx, ids)) rows.set(`${merchantId} ${kind} ${id}`, row)
  }
  return changes.map(({ merchantId, kind, objectId, at }) => {
    const row = rows.get(`${merchantId} ${kind} ${objectId}`)
    const id = kind === "payout" ? payoutIdOf(objectId) : objectId
    return { kind, objectId: id, at: at.toISOString(), row: row ? fitted(row) : null }
  })
}

/** Shortens the texts of a row that is too large; null if the row still does not fit. */
function fitted(row: Record<string, unknown>): Record<string, unknown> | null {
  if (sizeOf(row) <= MAX_ROW_BYTES) return row
  const short = Object.fromEntries(
    Object.entries(row).map(([name, value]) => [name, typeof value === "string" ? value.slice(0, MAX_TEXT) : value]),
  )
  return sizeOf(short) <= MAX_ROW_BYTES ? short : null
}

const sizeOf = (row: object): number => Buffer.byteLength(JSON.stringify(row))

const readers: Record<Change["kind"], (ctx: TxContext, ids: readonly string[]) => Promise<Owned[]>> = {
  checkout: readCheckouts,
  payment: readPayments,
  payout: async (ctx, ids) => await owned(await payoutsById(ctx, ids), rows => shownPayouts(ctx, rows)),
  refund: async (ctx, ids) => {
    const rows = await selectRefunds(ctx).where("refunds.id", "in", ids).execute()
    // The wallet approval that a refund needs is read from the chain, which only the list does.
    const list = await refundsWith(ctx, rows, undefined)
    return await owned(rows, async () => list.map(({ approval: _, ...shown }) => shown))
  },
  subscription: async (ctx, ids) => {
    const query = ctx.db.selectFrom("subscriptions").selectAll().where("id", "in", ids)
    const begun = query.where("started_at", "is not", null).where("status", "is not", null)
    return await owned(await begun.execute(), async rows => rows.map(row => shownSubscription(ctx, row)))
  },
  invoice: async (ctx, ids) =>
    await owned(await invoicesById(ctx, ids).execute(), async rows => rows.map(row => shownInvoice(ctx, row))),
  delivery: readDeliveries,
  webhook: readWebhooks,
  // A merchant has few payout addresses, and the settings show them.
  payout_address: async () => [],
}

async function owned<R extends { id: string; merchant_id: string }>(
  rows: R[],
  show: (rows: R[]) => Promise<Record<string, unknown>[]>,
): Promise<Owned[]> {
  const shown = await show(rows)
  return rows.map(({ id, merchant_id: merchantId }, i) => ({ id, merchantId, row: shown[i] ?? {} }))
}

async function readCheckouts(ctx: TxContext, ids: readonly string[]): Promise<Owned[]> {
  const rows = await ctx.db
    .selectFrom("checkout_sessions as s")
    .select(["id", "merchant_id", "chain_id", "status", "exception", "amount", "received", "currency", "product_id"])
    .select(["capture", "payer", "tx_hash", "expires_at", "confirmed_at", "created_at", "updated_at", "customer_email"])
    .select(sql<string | null>`left(description, ${sql.lit(MAX_TEXT)})`.as("description"))
    .select(sql<string | null>`(select l.slug from payment_links l where l.id = s.link_id)`.as("slug"))
    .where("id", "in", ids)
    .execute()
  return await owned(rows, async rows =>
    rows.map(row => {
      const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
      return {
        id: row.id,
        status: row.status,
        exception: row.exception,
        amount: formatAmount(row.amount, token.decimals),
        amountReceived: formatAmount(row.received, token.decimals),
        currency: row.currency,
        chain,
        description: row.description,
        slug: row.slug,
        productId: row.product_id,
        capture: row.capture,
        customerEmail: row.customer_email,
        payer: row.payer && checksummed(row.payer),
        txHash: row.tx_hash,
        expiresAt: row.expires_at.toISOString(),
        confirmedAt: row.confirmed_at?.toISOString() ?? null,
        createdAt: row.created_at.toISOString(),
        updatedAt: row.updated_at.toISOString(),
      }
    }),
  )
}

async function readPayments(ctx: TxContext, ids: readonly string[]): Promise<Owned[]> {
  const rows = await transactionsById(ctx, ids).execute()
  const surpluses = await ctx.db
    .selectFrom("surpluses")
    .select(["payment_id", "state"])
    .where("payment_id", "in", ids)
    .execute()
  const shown = await transactionsOf(ctx, rows)
  return await owned(rows, async rows =>
    rows.map(({ id, status }, i) => {
      const surplus = surpluses.find(({ payment_id }) => payment_id === id)?.state ?? null
      // A payment with a surplus needs the merchant's decision only while the payment counts.
      const needsYou = status === "open" || (status === "granted" && surplus === "open")
      return { ...shown[i], surplus, needsYou }
    }),
  )
}

async function readDeliveries(ctx: TxContext, ids: readonly string[]): Promise<Owned[]> {
  const rows = await ctx.db
    .selectFrom("deliveries as d")
    .leftJoin("events as e", "e.id", "d.event_id")
    .leftJoin("webhooks as w", "w.id", "d.webhook_id")
    .select([
      "d.id",
      "d.merchant_id",
      "d.event_id",
      "d.webhook_id",
      "d.order_key",
      "d.status",
      "d.attempts",
      "d.run_at",
    ])
    .select(["d.claim_id", "d.created_at", "d.updated_at", sql<string>`e.type`.as("type")])
    .select(eb => eb.fn.coalesce("d.url", "w.url").as("url"))
    .where("d.id", "in", ids)
    .execute()
  return await owned(rows, async rows => rows.map(deliveryOf))
}

async function readWebhooks(ctx: TxContext, ids: readonly string[]): Promise<Owned[]> {
  const rows = await ctx.db
    .selectFrom("webhooks")
    .select(["id", "merchant_id", "url", "active", "disabled_reason", "failing_since", "updated_at"])
    .where("id", "in", ids)
    .where("deleted_at", "is", null)
    .execute()
  return await owned(rows, async rows =>
    rows.map(row => ({
      id: row.id,
      url: row.url,
      active: row.active,
      disabledReason: row.disabled_reason,
      failingSince: row.failing_since?.toISOString() ?? null,
      updatedAt: row.updated_at.toISOString(),
    })),
  )
}
