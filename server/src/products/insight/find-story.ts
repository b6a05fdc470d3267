/** Finds the rows for the timeline of an id. An id of another merchant counts as unknown. */
import { bringBack } from "../../ledger/deposits/put-away.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { rowIdOf } from "../../platform/ids.ts"

/** What an id stands for. */
export type Subject =
  | { type: "payment"; payment: Row<"payments"> }
  | { type: "checkout"; session: Row<"checkout_sessions"> }
  | { type: "payout"; payout: Row<"payouts"> }
  | { type: "refund"; refund: Row<"refunds"> }
  | { type: "subscription"; subscription: Row<"subscriptions"> }
  | { type: "invoice"; invoice: Row<"invoices"> }
  | { type: "event"; event: Row<"events"> }

/** An id, and the ids of everything on its timeline. */
export interface Story {
  id: string
  subject: Subject
  sessionIds: string[]
  paymentIds: string[]
  /** The ids of rows, not those that the API shows. */
  payoutIds: string[]
  refundIds: string[]
  subscriptionIds: string[]
  /** The ids of the objects that the story's events are about. */
  eventsOf: string[]
}

/** How many payments are shown at most: the newest, because a subject may have thousands. */
const MAX_PAYMENTS = 50

const none = { sessionIds: [], paymentIds: [], payoutIds: [], refundIds: [], subscriptionIds: [], eventsOf: [] }

/** Finds the merchant's object with this id; throws `NOT_FOUND`. */
export async function findStory(ctx: Context, merchantId: string, id: string): Promise<Story> {
  const kind = id.slice(0, id.indexOf("_"))
  const find = Object.hasOwn(finders, kind) ? finders[kind] : undefined
  const story = isStorableId(id) ? await find?.(ctx, merchantId, id) : undefined
  if (!story) throw new ApiError("NOT_FOUND")
  return story
}

const isStorableId = (id: string): boolean => /^[a-z]+_[a-z0-9]{24,32}$/.test(id)

type Finder = (ctx: Context, merchantId: string, id: string) => Promise<Story | undefined>

const finders: Record<string, Finder> = {
  cs: checkoutStory,
  pay: paymentStory,
  grant: async (ctx, merchantId, id) => {
    const grants = ctx.db.selectFrom("grants").select("payment_id").where("id", "=", id)
    const grant = await grants.executeTakeFirst()
    return grant && (await paymentStory(ctx, merchantId, grant.payment_id))
  },
  po: async (ctx, merchantId, id) => {
    if (!/^po_[0-9a-f]{32}$/.test(id)) return undefined
    return await payoutStory(ctx, merchantId, rowIdOf(id), id)
  },
  set: async (ctx, merchantId, id) => {
    const settlement = await own(ctx, "settlements", merchantId, id)
    return settlement && (await payoutStory(ctx, merchantId, settlement.payout_id, id))
  },
  re: async (ctx, merchantId, id) => {
    const refund = await own(ctx, "refunds", merchantId, id)
    if (!refund) return undefined
    const ids = { payoutIds: [refund.payout_id], refundIds: [id], eventsOf: [refund.session_id] }
    return { id, subject: { type: "refund", refund }, ...none, ...ids }
  },
  sub: async (ctx, merchantId, id) => {
    const subscription = await own(ctx, "subscriptions", merchantId, id)
    const ids = { subscriptionIds: [id], eventsOf: [id] }
    return subscription && { id, subject: { type: "subscription", subscription }, ...none, ...ids }
  },
  inv: async (ctx, merchantId, id) => {
    const invoice = await own(ctx, "invoices", merchantId, id)
    const story = invoice && (await checkoutStory(ctx, merchantId, invoice.session_id))
    return story && { ...story, id, subject: { type: "invoice", invoice } }
  },
  evt: eventStory,
  dlv: async (ctx, merchantId, id) => {
    const delivery = await own(ctx, "deliveries", merchantId, id)
    return delivery && (await eventStory(ctx, merchantId, delivery.event_id))
  },
}

type Owned =
  | "payments"
  | "checkout_sessions"
  | "refunds"
  | "subscriptions"
  | "invoices"
  | "events"
  | "settlements"
  | "deliveries"

/** The merchant's row with this id. */
async function own<T extends Owned>(
  { db }: TxContext,
  table: T,
  merchantId: string,
  id: string,
): Promise<Row<T> | undefined> {
  const query = db
    .selectFrom(table as Owned)
    .selectAll()
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
  return (await query.executeTakeFirst()) as Row<T> | undefined
}

async function checkoutStory(ctx: Context, merchantId: string, id: string): Promise<Story | undefined> {
  const find = () => own(ctx, "checkout_sessions", merchantId, id)
  let session = await find()
  if (!session) {
    const away = ctx.db.selectFrom("put_away").select("id").where("id", "=", id).where("merchant_id", "=", merchantId)
    if (!(await away.executeTakeFirst())) return undefined
    await bringBack(ctx, { ids: [id] })
    session = await find()
  }
  if (!session) return undefined
  const payments = ctx.db.selectFrom("payments").select("id").where("resource_id", "=", id)
  const rows = await payments.orderBy("created_at", "desc").limit(MAX_PAYMENTS).execute()
  const refunds = await ctx.db
    .selectFrom("refunds")
    .select("id")
    .where("session_id", "=", id)
    .limit(MAX_PAYMENTS)
    .execute()
  const paymentIds = rows.map(row => row.id)
  const ids = { sessionIds: [id], paymentIds, refundIds: refunds.map(row => row.id), eventsOf: [id, ...paymentIds] }
  return { id, subject: { type: "checkout", session }, ...none, ...ids }
}

async function paymentStory(ctx: Context, merchantId: string, id: string): Promise<Story | undefined> {
  const payment = await own(ctx, "payments", merchantId, id)
  if (!payment) return undefined
  const isOfCheckout = payment.resource_id.startsWith("cs_")
  const sessionIds = isOfCheckout ? [payment.resource_id] : []
  const ids = { sessionIds, paymentIds: [id], eventsOf: [...sessionIds, id] }
  return { id, subject: { type: "payment", payment }, ...none, ...ids }
}

async function payoutStory(ctx: Context, merchantId: string, rowId: string, id: string): Promise<Story | undefined> {
  const query = ctx.db.selectFrom("payouts").selectAll().where("id", "=", rowId).where("merchant_id", "=", merchantId)
  const payout = await query.executeTakeFirst()
  // Calls that write receipts name a merchant, but none of the merchant's money moves.
  if (payout && kindOf(payout).moneyOf === "nobody") return undefined
  return payout && { id, subject: { type: "payout", payout }, ...none, payoutIds: [rowId] }
}

async function eventStory(ctx: Context, merchantId: string, id: string): Promise<Story | undefined> {
  const event = await own(ctx, "events", merchantId, id)
  return event && { id, subject: { type: "event", event }, ...none }
}
