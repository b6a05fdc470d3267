/**
 * Reads the data for one payment's pages (the receipt and the claim of waiting money) and for a payment link's page.
 */
import { catalogues } from "../../../../web/src/i18n/all.ts"
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { LinkPage, PageBase, Reservation, ReturnPage } from "../../../../web/src/page-data.ts"
import { shown } from "../../../../web/src/ui/shown.ts"
import { amountFormatter } from "../../platform/chain/format-amounts.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { isOnSale } from "../checkouts/manage-catalog.ts"
import { paidStatuses } from "../escrow/show-escrow.ts"
import { httpLink } from "./html.ts"
import { pageBase } from "./load-page-base.ts"
import { reservationOf, standingOfSession } from "./read-escrow.ts"
import { transactionsOfPayment } from "./read-money.ts"

/** A receipt: what was paid for, when, and whether the payment still counts. */
export interface Receipt extends PageBase {
  /**
   * The receipt's number, with which `/receipt/:id` finds it: the id of the checkout. For a paywall's payment, and
   * for a payment accepted in addition to its checkout's own, it is the payment's id.
   */
  id: string
  what: string | null
  amount: string
  paidAt: Date
  /** The transactions of the payment; empty if `reservation` has them. */
  txHashes: string[]
  /** The URL that leads back to the merchant; null if none is set or nothing was paid. */
  redirectUrl: string | null
  /** Which notice the receipt shows at the top; undefined while the payment counts. */
  ended?: "reversed" | "returned" | "released" | "refunded" | undefined
  /** What the verifiable receipts are about: the payment, or the calls of an escrow. */
  abouts: string[]
  /** The movements with their transactions, for a payment that was reserved first. */
  reservation?: Reservation
}

/** The receipt of a payment, by the id of the payment or of its checkout; throws `PAYMENT_NOT_FOUND`. */
export const receiptOf = async (ctx: TxContext, id: string, lang: Language): Promise<Receipt> =>
  (await reservedReceipt(ctx, id, lang)) ?? (await paymentReceipt(ctx, id, lang))

/**
 * The receipt of a checkout that was reserved first, once an amount was captured or released; undefined for any other
 * checkout.
 */
async function reservedReceipt(ctx: TxContext, id: string, lang: Language): Promise<Receipt | undefined> {
  const session = await ctx.db.selectFrom("checkout_sessions").selectAll().where("id", "=", id).executeTakeFirst()
  const standing = session && (await standingOfSession(ctx, session))
  if (!standing) return undefined
  const { escrow } = standing
  if (!escrow.authorized_at || !ended.has(session.status)) throw new ApiError("PAYMENT_NOT_FOUND")
  const network = networkOf(ctx.chain, session.chain_id)
  const reservation = reservationOf(ctx, network, standing)
  return {
    ...(await pageBase(ctx, { merchantId: session.merchant_id, network, lang })),
    id,
    what: session.description === null ? null : shown(session.description),
    amount: session.status === "voided" ? reservation.authorized : reservation.captured,
    paidAt: escrow.authorized_at,
    ended: ended.get(session.status),
    reservation,
    abouts: await callsOf(ctx, id),
    txHashes: [],
    redirectUrl: backOf(session),
  }
}

async function callsOf(ctx: TxContext, sessionId: string): Promise<string[]> {
  const calls = ctx.db.selectFrom("payouts").select("id").where("escrow_id", "=", sessionId)
  return (await calls.execute()).map(({ id }) => id)
}

const backOf = ({ status, redirect_url }: Pick<Row<"checkout_sessions">, "status" | "redirect_url">) =>
  paidStatuses.includes(status) ? httpLink(redirect_url) : null

const ended = new Map<Row<"checkout_sessions">["status"], Receipt["ended"]>([
  ["confirmed", undefined],
  ["partially_refunded", undefined],
  ["refunded", "refunded"],
  ["voided", "released"],
])

/**
 * The payment that a session's receipt shows: the one that paid it, or else one that paid it earlier or was returned.
 */
async function ownPayment(ctx: TxContext, sessionId: string): Promise<string | undefined> {
  const row = await ctx.db
    .selectFrom("payments")
    .select("id")
    .where("resource_id", "=", sessionId)
    .where("beside", "=", false)
    .where("status", "<>", "open")
    .orderBy(eb => eb("status", "=", "granted"), "desc")
    .orderBy(eb => eb("status", "=", "reversed"), "desc")
    .orderBy("accepted_at", order => order.asc().nullsFirst())
    .orderBy("id")
    .limit(1)
    .executeTakeFirst()
  return row?.id
}

async function paymentReceipt(ctx: TxContext, id: string, lang: Language): Promise<Receipt> {
  const isSession = id.startsWith("cs_")
  const row = await ctx.db
    .selectFrom("payments")
    .leftJoin("checkout_sessions", "checkout_sessions.id", "payments.resource_id")
    .leftJoin("paywalls", "paywalls.id", "payments.resource_id")
    .leftJoin("products", "products.id", "checkout_sessions.product_id")
    .selectAll("payments")
    .select(["checkout_sessions.description as ordered", "paywalls.name as unlocked", "products.name as product"])
    .select(["checkout_sessions.redirect_url", "checkout_sessions.status as session_status"])
    .where("payments.id", "=", isSession ? ((await ownPayment(ctx, id)) ?? "") : id)
    .executeTakeFirst()
  if (!row || row.status === "open") throw new ApiError("PAYMENT_NOT_FOUND")
  const { session_status: status, redirect_url, resource_id } = row
  const isOwn = isSession || (status !== null && (await ownPayment(ctx, resource_id)) === row.id)
  const network = networkOf(ctx.chain, row.chain_id)
  const what = row.ordered ?? row.product ?? row.unlocked
  return {
    ...(await pageBase(ctx, { merchantId: row.merchant_id, network, lang })),
    id: isOwn ? resource_id : row.id,
    what: what === null ? null : shown(what),
    amount: formatAmount(row.amount, network.token.decimals),
    paidAt: row.created_at,
    abouts: [row.id],
    txHashes: await transactionsOfPayment(ctx, row.id),
    redirectUrl: status === null ? null : backOf({ status, redirect_url }),
    ended: row.status === "reversed" || row.status === "returned" ? row.status : undefined,
  }
}

/** The surplus of a granted payment that still needs the merchant's decision, in base units. */
async function openSurplus(ctx: TxContext, { id, status }: Row<"payments">): Promise<bigint | undefined> {
  if (status !== "granted") return undefined
  const surplus = ctx.db.selectFrom("surpluses").select("amount").where("payment_id", "=", id)
  return (await surplus.where("state", "=", "open").executeTakeFirst())?.amount
}

/**
 * The page on which a payer claims a payment; `data` is null unless the payment is open. Throws `PAYMENT_NOT_FOUND`.
 */
export async function returnPage(
  ctx: TxContext,
  id: string,
  lang: Language,
): Promise<{ base: PageBase; data: ReturnPage | null }> {
  const row = await ctx.db.selectFrom("payments").selectAll().where("id", "=", id).executeTakeFirst()
  if (!row) throw new ApiError("PAYMENT_NOT_FOUND")
  const network = networkOf(ctx.chain, row.chain_id)
  const base = await pageBase(ctx, { merchantId: row.merchant_id, network, lang })
  const waiting = row.status === "open" ? row.amount : await openSurplus(ctx, row)
  if (waiting === undefined) return { base, data: null }
  const { amount, currency } = (await amountFormatter(ctx, [row]))({ ...row, amount: waiting })
  return {
    base,
    data: {
      kind: "return",
      ...base,
      paymentId: id,
      resourceId: row.resource_id,
      amount,
      currency,
      payer: checksummed(row.payer),
    },
  }
}

/** The page of a payment link; `data` is null if the link starts no more checkouts. Throws `LINK_NOT_FOUND`. */
export async function linkPage(
  ctx: TxContext,
  slug: string,
  lang: Language,
): Promise<{ base: PageBase; data: LinkPage | null }> {
  const link = await ctx.db.selectFrom("payment_links").selectAll().where("slug", "=", slug).executeTakeFirst()
  if (!link) throw new ApiError("LINK_NOT_FOUND")
  const network = networkOf(ctx.chain, link.chain_id)
  const base = await pageBase(ctx, { merchantId: link.merchant_id, network, lang })
  if (!(await isOnSale(ctx, link))) return { base, data: null }
  const amount = link.amount === null ? null : formatAmount(link.amount, network.token.decimals)
  const description = link.description === null ? null : shown(link.description)
  return {
    base,
    data: { kind: "link", ...base, slug, title: shown(link.title) || catalogues[lang].payment, description, amount },
  }
}

/** The id of the paywall with this slug; undefined if there is none. */
export async function paywallOfSlug(ctx: TxContext, slug: string): Promise<string | undefined> {
  const row = await ctx.db.selectFrom("paywalls").select("id").where("slug", "=", slug).executeTakeFirst()
  return row?.id
}
