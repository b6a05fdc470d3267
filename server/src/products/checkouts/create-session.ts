/** Creates checkout sessions, and ends sessions that nobody started to pay. */
import { sql } from "kysely"
import { receiverFault } from "../../account/webhooks/webhook.ts"
import { depositRow } from "../../ledger/deposits/make-deposits.ts"
import { isNewPaused, pausedWhile, sellingPaused } from "../../ledger/payouts/check-paused.ts"
import { type RecipientSet, recipientSetOf } from "../../ledger/splits/manage-splits.ts"
import { partsFaults } from "../../ledger/splits/split.ts"
import { currencyFaults } from "../../platform/chain/currency.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { networkAsked, networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import type { KeptAnswer } from "../../platform/http/run-idempotently.ts"
import { readAmount } from "../../platform/money/amount.ts"
import { escrowFaults, makeEscrow } from "../escrow/create-escrow.ts"
import { beginSubscription, isRecurring } from "./begin-subscription.ts"
import { metadataFaults, ownSplitFaults, redirectFaults } from "./input-faults.ts"
import { loadOffer, type Offer, type OfferedLink, type OfferedProduct, sellerOf } from "./load-offer.ts"
import { isOffered } from "./manage-catalog.ts"
import type { CheckoutCreate } from "./schema.ts"
import { depositOf, type SessionTerms, sessionRow, unpaidSession, writeSession } from "./write-session.ts"

/** How long the address of a new session is watched from the start, because its page is open. */
const WATCHED_MS = 3_600_000

/** The requested terms, and the recipients of their split. */
interface AskedTerms extends SessionTerms {
  recipients: RecipientSet["recipients"]
}

/** A newly created session. */
export interface MadeSession {
  session: Row<"checkout_sessions">
  /** The session's receiving address; null if a signature reserves money in an escrow. */
  payTo: Address | null
  escrow: Row<"escrows"> | undefined
  /** The slug of the session's payment link. */
  slug: string | null
}

/** Reads what {@link createSession} needs. Concurrent requests share a statement. */
export async function readOffer(ctx: TxContext, merchantId: string, body: CheckoutCreate): Promise<Offer> {
  const { slug, productId, chain } = body
  if (slug !== undefined && productId !== undefined)
    throw invalid("productId", "can't be given together with `slug`: the link sets what is sold")
  const network = chain === undefined ? ctx.chain.networks[0] : ctx.chain.networks.find(({ name }) => name === chain)
  return await loadOffer(
    ctx,
    slug === undefined ? { merchantId, productId, chainId: network?.chainId } : { merchantId, slug },
  )
}

/** Whether a single statement writes a session of this offer, so that no transaction is needed. */
export const isWrittenAtOnce = ({ link, product }: Offer, { splitId, capture = "direct" }: CheckoutCreate): boolean =>
  capture === "direct" && !(splitId ?? link?.split_id ?? product?.split_id) && !isRecurring(product)

/**
 * Creates a session with its own receiving address, or with an escrow. Must be called inside a transaction, unless
 * {@link isWrittenAtOnce} holds. `keptOf` builds the answer to store with the session. Throws `PAYMENTS_PAUSED`, also
 * if the key of that answer is already stored; nothing is written then.
 */
export async function createSession(
  ctx: TxContext,
  merchantId: string,
  body: CheckoutCreate,
  read?: Offer,
  keptOf?: (made: MadeSession) => KeptAnswer,
): Promise<MadeSession> {
  const offer = read ?? (await readOffer(ctx, merchantId, body))
  const terms = await termsOf(ctx, merchantId, offer, body)
  const paused = () => sellingPaused(terms.network)
  if (isNewPaused(pausedWhile(ctx, offer.halted), terms.network)) throw paused()
  const faults = [
    ...metadataFaults(body.metadata),
    ...redirectFaults(body.redirectUrl),
    ...escrowFaults(ctx, terms, body),
  ]
  if (body.payerFields !== undefined && body.payerInfo !== undefined)
    faults.push({
      path: "payerInfo",
      message: "can't be given together with `payerFields`: it is the old name of the same field",
    })
  if (isRecurring(terms.product) && (body.capture ?? "direct") !== "direct")
    faults.push({ path: "capture", message: "must be `direct` for a product with `billingInterval`" })
  faults.push(...ownSplitFaults(terms.product, body.splitId ?? undefined))
  const callbackFault = body.callbackUrl === undefined ? undefined : receiverFault(ctx.settings, body.callbackUrl)
  if (callbackFault) faults.push({ path: "callbackUrl", message: callbackFault })
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  return await insertSession(ctx, offer, terms, { merchantId, body, paused, keptOf })
}

/**
 * Creates a session of a payment link, for anyone who has the link's slug. Throws `LINK_NOT_FOUND`,
 * `LINK_UNAVAILABLE`, `PAYMENTS_PAUSED`.
 */
export async function createLinkSession(
  ctx: Context,
  body: { slug: string; amount?: number | string },
  agentCaller?: string,
): Promise<MadeSession> {
  const offer = await loadOffer(ctx, { slug: body.slug })
  const { link, product } = offer
  if (!link) throw new ApiError("LINK_NOT_FOUND")
  if (!isOffered(ctx.now(), link, product)) throw new ApiError("LINK_UNAVAILABLE")
  if (agentCaller !== undefined && link.payer_fields !== null)
    throw new ApiError(
      "LINK_UNAVAILABLE",
      undefined,
      `This link asks its payer for ${link.payer_fields.join(", ")}, so an agent can't buy it. A person can pay at ${ctx.settings.baseUrl}/p/${link.slug}.`,
    )
  const paused = () => new ApiError("PAYMENTS_PAUSED")
  if (isNewPaused(pausedWhile(ctx, offer.halted), networkOf(ctx.chain, link.chain_id))) throw paused()
  const make = async (ctx: TxContext) => {
    const terms = await linkTerms(ctx, link, product, body)
    return await insertSession(ctx, offer, terms, { merchantId: link.merchant_id, body: {}, paused, agentCaller })
  }
  return isWrittenAtOnce(offer, {}) ? await make(ctx) : await inTransaction(ctx, make)
}

interface NewSession {
  merchantId: string
  body: CheckoutCreate
  /** Builds the error for a request while selling is paused. */
  paused: () => ApiError
  agentCaller?: string | undefined
  keptOf?: ((made: MadeSession) => KeptAnswer) | undefined
}

async function insertSession(
  ctx: TxContext,
  offer: Offer,
  terms: AskedTerms,
  { merchantId, body, paused, agentCaller, keptOf }: NewSession,
): Promise<MadeSession> {
  const { network, amount, link, product, setId, recipients } = terms
  // The price of the link or product may date from a split with fewer recipients. The service pays for a transfer to
  // each recipient.
  const size = setId === undefined ? 1 : recipients.length
  const faults = partsFaults(ctx.settings.minAmount, network, amount, { size })
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  const seller = sellerOf(ctx, offer, network)
  const row = sessionRow(ctx, merchantId, terms, body, agentCaller)
  const parties = { ...seller, recipientSetId: setId ?? null }
  const deposit =
    row.capture === "direct"
      ? depositRow(ctx, network, { ...depositOf(row), ...parties, watchedMs: WATCHED_MS }, recipients)
      : undefined
  const slug = link?.slug ?? null
  const session = unpaidSession(row, body)
  const made: MadeSession = { session, payTo: deposit?.address ?? null, escrow: undefined, slug }
  if (!(await writeSession(ctx, { session: row, deposit, kept: keptOf?.(made) }))) throw paused()
  ctx.tracing?.active()?.set({ "sluice.network": network.name, "sluice.resource.id": session.id })
  if (!deposit) {
    const escrow = await makeEscrow(ctx, network, session, seller.owner, body)
    return { ...made, escrow }
  }
  // An agent pays for one call and is not billed again.
  if (isRecurring(product) && agentCaller === undefined) await beginSubscription(ctx, session, product)
  return made
}

/** Determines what is sold and its price, from exactly one of the request, a link or a product. */
async function termsOf(
  ctx: TxContext,
  merchantId: string,
  { link, product }: Offer,
  body: CheckoutCreate,
): Promise<AskedTerms> {
  if (body.slug !== undefined) {
    if (!link) throw invalid("slug", "must be the slug of one of your payment links")
    if (!isOffered(ctx.now(), link, product)) throw new ApiError("LINK_UNAVAILABLE")
    return await linkTerms(ctx, link, product, body)
  }
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
  return {
    network,
    amount,
    link: undefined,
    product,
    splitId,
    setId: split?.setId,
    recipients: split?.recipients ?? [],
  }
}

async function linkTerms(
  ctx: TxContext,
  link: OfferedLink,
  product: OfferedProduct | undefined,
  body: { amount?: number | string; splitId?: string | null },
): Promise<AskedTerms> {
  const network = networkOf(ctx.chain, link.chain_id)
  const splitId = body.splitId ?? link.split_id
  const split = await recipientSetOf(ctx, link.merchant_id, splitId)
  const terms = { network, link, product, splitId, setId: split?.setId, recipients: split?.recipients ?? [] }
  if (link.amount !== null) {
    if (body.amount !== undefined) throw invalid("amount", "can't be given: this link has a fixed amount")
    return { ...terms, amount: link.amount }
  }
  const amount = readAmount("amount", asWritten(body, "amount"), network.token, ctx.settings.minAmount, split?.size)
  if (typeof amount !== "bigint") throw new ApiError("VALIDATION_ERROR", [amount])
  return { ...terms, amount }
}

/** Returns a session by its id, for anyone who has the id; throws `SESSION_NOT_FOUND`. */
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

const OVER = "This checkout has ended: it expired or was deleted."

/**
 * Ends a session that nobody started to pay. Throws `SESSION_NOT_FOUND` if it has already ended, and
 * `INVALID_OPERATION` for a session in any other state and for a subscription's renewal. Late money is still found.
 */
export async function closeSession(ctx: Context, merchantId: string, id: string): Promise<void> {
  if (await inTransaction(ctx, ctx => endUnlessRenewal(ctx, merchantId, id))) return
  const { status } = await sessionOf(ctx, id, merchantId)
  // A closed session stays `pending` until its expiry is settled.
  if (status === "pending" || status === "expired") throw new ApiError("SESSION_NOT_FOUND", undefined, OVER)
  throw new ApiError("INVALID_OPERATION", undefined, `Only a pending checkout can be closed; this one is ${status}.`)
}

/**
 * Ends a pending session, but refuses a subscription's invoice. Ending that would cancel the subscription, which the
 * merchant must request explicitly.
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
 * Ends those of these sessions that are pending, and returns their ids. They expire at the next settlement. Without
 * `merchantId`, sessions of all merchants are ended.
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
