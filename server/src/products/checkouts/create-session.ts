/** Creates checkout sessions, and stores what payers submit to them. */
import { sql } from "kysely"
import { payoutAddressOn } from "../../account/identity/read-payout-addresses.ts"
import { receiverFault } from "../../account/webhooks/webhook.ts"
import { approverOf } from "../../ledger/deposits/find-parties.ts"
import { makeDeposit, watch } from "../../ledger/deposits/make-deposits.ts"
import { assertSelling, isPaused } from "../../ledger/payouts/check-paused.ts"
import { freshSubmission, verifySoon } from "../../ledger/scanner/queries.ts"
import { recipientSetOf, recipientsOf } from "../../ledger/splits/manage-splits.ts"
import { partsFaults } from "../../ledger/splits/split.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import { currencyFaults } from "../../platform/chain/currency.ts"
import { type Address, type Hash, parseHash } from "../../platform/chain/hex.ts"
import { type NetworkInfo, networkAsked, networkOf } from "../../platform/chain/network-facts.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { newId } from "../../platform/ids.ts"
import { readAmount } from "../../platform/money/amount.ts"
import { continueTrace, traceparentNow } from "../../platform/tracing/trace.ts"
import { escrowFaults, makeEscrow } from "../escrow/create-escrow.ts"
import { firstMessage } from "../escrow/words.ts"
import { assertAsked } from "./answer-payer-info.ts"
import { beginSubscription, isRecurring } from "./begin-subscription.ts"
import { metadataFaults, ownSplitFaults, redirectFaults } from "./input-faults.ts"
import { isOnSale, ownLink, ownProduct } from "./manage-catalog.ts"
import type { CheckoutCreate, PayConfirm } from "./schema.ts"

const DEFAULT_LIFE_S = 86_400
/**
 * Anyone may send a session's remaining money to its owner this long after the session's end. Late payments are found
 * until then.
 */
const OPEN_AFTER_MS = 30 * 86_400_000
/** A new session's page is open, so its address is watched for this long from the start. */
const WATCHED_MS = 3_600_000
/** How long after a session's end its address is searched for late money. */
const LATE_WATCH_MS = 30 * 86_400_000
/** Open submissions of one session at a time: a payer has one or two. */
const MAX_OPEN_HASHES = 10

/** What a session sells, read from a request, a link or a subscription. */
export interface SessionTerms {
  network: NetworkInfo
  amount: bigint
  link: Row<"payment_links"> | undefined
  product: Row<"products"> | undefined
  splitId: string | null
  /** The set of recipients that divides the payment, as it is now; undefined: the merchant gets all. */
  setId: bigint | undefined
}

/**
 * Creates a session with a receiving address of its own, or with an escrow; `PAYMENTS_PAUSED`. Call it inside a
 * transaction.
 */
export async function createSession(
  ctx: TxContext,
  merchantId: string,
  body: CheckoutCreate,
): Promise<Row<"checkout_sessions">> {
  const terms = await termsOf(ctx, merchantId, body)
  await assertSelling(ctx, terms.network)
  const faults = [
    ...metadataFaults(body.metadata),
    ...redirectFaults(body.redirectUrl),
    ...escrowFaults(ctx, terms, body),
  ]
  if (body.payerFields !== undefined && body.payerInfo !== undefined)
    faults.push({
      path: "payerInfo",
      message: "can't be given together with `payerFields`: it is the old name of that field",
    })
  if (isRecurring(terms.product) && (body.capture ?? "direct") !== "direct")
    faults.push({ path: "capture", message: "must be `direct` for a product with `billingInterval`" })
  faults.push(...ownSplitFaults(terms.product, body.splitId ?? undefined))
  const callbackFault = body.callbackUrl === undefined ? undefined : receiverFault(ctx.settings, body.callbackUrl)
  if (callbackFault) faults.push({ path: "callbackUrl", message: callbackFault })
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  return await insertSession(ctx, merchantId, terms, body)
}

/**
 * Creates a session of a payment link, for anyone who has its slug; `LINK_NOT_FOUND`, `LINK_UNAVAILABLE`,
 * `PAYMENTS_PAUSED`.
 */
export async function createLinkSession(
  ctx: TxContext,
  body: { slug: string; amount?: number | string },
  agentCaller?: string,
): Promise<Row<"checkout_sessions">> {
  const link = await ctx.db.selectFrom("payment_links").selectAll().where("slug", "=", body.slug).executeTakeFirst()
  if (!link) throw new ApiError("LINK_NOT_FOUND")
  if (!(await isOnSale(ctx, link))) throw new ApiError("LINK_UNAVAILABLE")
  if (await isPaused(ctx, networkOf(ctx.chain, link.chain_id))) throw new ApiError("PAYMENTS_PAUSED")
  return await insertSession(ctx, link.merchant_id, await linkTerms(ctx, link, body), {}, agentCaller)
}

async function insertSession(
  ctx: TxContext,
  merchantId: string,
  terms: SessionTerms,
  body: CheckoutCreate,
  agentCaller?: string,
): Promise<Row<"checkout_sessions">> {
  const { network, amount, product, setId } = terms
  // The link or product may have set its price when the split had fewer recipients. The service pays for a transfer to
  // each.
  const size = setId === undefined ? 1 : ((await recipientsOf(ctx, [setId])).get(setId)?.length ?? 1)
  const faults = partsFaults(ctx.settings.minAmount, network, amount, { size })
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  const owner = await payoutAddressOn(ctx, merchantId, network)
  const row = sessionRow(ctx, merchantId, terms, body, agentCaller)
  const session = await ctx.db.insertInto("checkout_sessions").values(row).returningAll().executeTakeFirstOrThrow()
  ctx.tracing?.active()?.set({ "sluice.network": network.name, "sluice.resource.id": session.id })
  if (session.capture !== "direct") {
    await makeEscrow(ctx, network, session, owner, body)
    return session
  }
  const approver = await approverOf(ctx, network, merchantId, owner)
  const parties = { owner, approver, recipientSetId: setId ?? null }
  await makeDeposit(ctx, network, { ...depositOf(session), ...parties, watchedMs: WATCHED_MS })
  // An agent pays for one call and is not billed again.
  if (isRecurring(product) && agentCaller === undefined) await beginSubscription(ctx, session, product)
  return session
}

/** The session that a receiving address belongs to, and when anyone may empty the address. */
export const depositOf = ({ id, expires_at }: Pick<Row<"checkout_sessions">, "id" | "expires_at">) => ({
  resourceId: id,
  opensAt: new Date(expires_at.getTime() + OPEN_AFTER_MS),
})

/** The row of a new session, which nobody has paid yet. */
export function sessionRow(
  ctx: TxContext,
  merchantId: string,
  { network, amount, link, product, splitId, setId }: SessionTerms,
  body: CheckoutCreate & { expiresAt?: Date },
  agentCaller?: string,
) {
  const now = ctx.now()
  const expiresAt = body.expiresAt ?? new Date(now.getTime() + (body.expiresIn ?? DEFAULT_LIFE_S) * 1_000)
  const { capture = "direct" } = body
  const json = (value: unknown) => (value === undefined ? null : JSON.stringify(value))
  return {
    id: newId("cs"),
    merchant_id: merchantId,
    chain_id: network.chainId,
    amount,
    currency: network.token.symbol,
    description: body.description ?? link?.description ?? null,
    redirect_url: body.redirectUrl ?? link?.redirect_url ?? null,
    callback_url: body.callbackUrl ?? null,
    link_id: link?.id ?? null,
    product_id: product?.id ?? null,
    split_id: splitId,
    recipient_set_id: setId ?? null,
    customer_email: body.customerEmail ?? null,
    payer_fields: json(body.payerFields ?? body.payerInfo),
    payer_info: null,
    metadata: json(body.metadata),
    status: "pending" as const,
    capture,
    message: capture === "direct" ? null : firstMessage(amount, network.token),
    agent: agentCaller !== undefined,
    agent_caller: agentCaller ?? null,
    expires_at: expiresAt,
    run_at: capture === "direct" ? expiresAt : null,
    created_at: now,
    updated_at: now,
    traceparent: traceparentNow(ctx),
  }
}

/** Reads what is sold and for how much: from the request, a link or a product, and from one of them only. */
async function termsOf(ctx: TxContext, merchantId: string, body: CheckoutCreate): Promise<SessionTerms> {
  if (body.slug !== undefined && body.productId !== undefined)
    throw invalid("productId", "can't be given together with `slug`: the link already sets what is sold")
  if (body.slug !== undefined) {
    const link = await ownLink(ctx, merchantId, body.slug)
    if (!link) throw invalid("slug", "must be the slug of one of your payment links")
    if (!(await isOnSale(ctx, link))) throw new ApiError("LINK_UNAVAILABLE")
    return await linkTerms(ctx, link, body)
  }
  const product = body.productId === undefined ? undefined : await ownProduct(ctx, merchantId, body.productId)
  if (body.productId !== undefined && !product?.active)
    throw invalid("productId", "must be the id of one of your active products")
  const splitId = body.splitId ?? product?.split_id ?? null
  const split = await recipientSetOf(ctx, merchantId, splitId)
  const chain = product ? networkOf(ctx.chain, product.chain_id).name : body.chain
  const network = networkAsked(ctx.chain, chain)
  const faults = currencyFaults(network, body.currency)
  if (product && body.chain !== undefined && body.chain !== chain)
    faults.push({ path: "chain", message: `must be ${chain}, the network of the product` })
  if (product && body.amount !== undefined)
    faults.push({ path: "amount", message: "can't be given together with `productId`: the product sets the price" })
  const amount =
    product?.price ??
    readAmount("amount", asWritten(body, "amount"), network.token, ctx.settings.minAmount, split?.size)
  if (typeof amount !== "bigint")
    faults.push(
      body.amount === undefined
        ? { path: "amount", message: "is required unless `slug` or `productId` sets the price" }
        : amount,
    )
  if (typeof amount !== "bigint" || faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  return { network, amount, link: undefined, product, splitId, setId: split?.setId }
}

async function linkTerms(
  ctx: TxContext,
  link: Row<"payment_links">,
  body: { amount?: number | string; splitId?: string | null },
): Promise<SessionTerms> {
  const network = networkOf(ctx.chain, link.chain_id)
  const splitId = body.splitId ?? link.split_id
  const split = await recipientSetOf(ctx, link.merchant_id, splitId)
  const product = link.product_id === null ? undefined : await ownProduct(ctx, link.merchant_id, link.product_id)
  const terms = { network, link, product, splitId, setId: split?.setId }
  if (link.amount !== null) {
    if (body.amount !== undefined) throw invalid("amount", "can't be given: this link has a fixed amount")
    return { ...terms, amount: link.amount }
  }
  const amount = readAmount("amount", asWritten(body, "amount"), network.token, ctx.settings.minAmount, split?.size)
  if (typeof amount !== "bigint") throw new ApiError("VALIDATION_ERROR", [amount])
  return { ...terms, amount }
}

/** Returns a session by its id, for anyone who has it; `SESSION_NOT_FOUND`. */
export async function sessionOf(ctx: TxContext, id: string, merchantId?: string): Promise<Row<"checkout_sessions">> {
  const row = await ctx.db
    .selectFrom("checkout_sessions")
    .selectAll()
    .where("id", "=", id)
    .$if(merchantId !== undefined, query => query.where("merchant_id", "=", merchantId ?? ""))
    .executeTakeFirst()
  if (!row) throw new ApiError("SESSION_NOT_FOUND")
  return row
}

const OVER = "This checkout is over: it has expired, or was deleted."

/**
 * Ends a session that nobody has begun to pay; `SESSION_NOT_FOUND` once it is over, `INVALID_OPERATION` for any other
 * and for a subscription's renewal. Late money is still found.
 */
export async function closeSession(ctx: Context, merchantId: string, id: string): Promise<void> {
  if (await inTransaction(ctx, ctx => endUnlessRenewal(ctx, merchantId, id))) return
  const { status } = await sessionOf(ctx, id, merchantId)
  // A closed session stays `pending` until its expiry is settled.
  if (status === "pending" || status === "expired") throw new ApiError("SESSION_NOT_FOUND", undefined, OVER)
  throw new ApiError("INVALID_OPERATION", undefined, `Only a pending checkout can be closed; this one is ${status}.`)
}

/**
 * Ends a pending session. It refuses a subscription's invoice: ending that would cancel the subscription, which the
 * merchant must ask for itself.
 */
async function endUnlessRenewal(ctx: TxContext, merchantId: string, id: string): Promise<boolean> {
  if ((await endPending(ctx, [id], merchantId)).length === 0) return false
  const subscription = await ctx.db
    .selectFrom("invoices")
    .innerJoin("subscriptions", "subscriptions.id", "invoices.subscription_id")
    .select("subscriptions.id")
    .where("invoices.session_id", "=", id)
    .where("subscriptions.status", "is not", null)
    .executeTakeFirst()
  if (!subscription) return true
  const message = `This checkout is an invoice of ${subscription.id}: pause or cancel the subscription instead.`
  throw new ApiError("INVALID_OPERATION", undefined, message)
}

/**
 * Ends those of these sessions that are pending and returns their ids; they expire at the next settlement. Without
 * `merchantId`, sessions of all merchants.
 */
export async function endPending(ctx: TxContext, ids: readonly string[], merchantId?: string): Promise<string[]> {
  if (ids.length === 0) return []
  const now = ctx.now()
  const closed = await ctx.db
    .updateTable("checkout_sessions")
    .set({ expires_at: now, run_at: sql`case when capture = 'direct' then ${now}::timestamptz end`, updated_at: now })
    .where("id", "in", ids)
    .$if(merchantId !== undefined, query => query.where("merchant_id", "=", merchantId ?? ""))
    .where("status", "=", "pending")
    .where("expires_at", ">", now)
    .returning("id")
    .execute()
  const ended = closed.map(({ id }) => id)
  if (ended.length > 0)
    await ctx.db.updateTable("escrows").set({ run_at: now }).where("session_id", "in", ended).execute()
  return ended
}
