/** Loads what agents can buy here: paywalls and payment links, each with its current price. */

import { sql } from "kysely"
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { pausedDeposits } from "../../ledger/payouts/check-paused.ts"
import { receiptUrl } from "../../ledger/receipts/receipt-url.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { formatAmount, readAmount } from "../../platform/money/amount.ts"
import { createLinkSession } from "../checkouts/create-session.ts"
import { isOnSale } from "../checkouts/manage-catalog.ts"
import { QUOTE_MS } from "../paywalls/payment.ts"
import { publicPaywall } from "../paywalls/submit-payment.ts"
import { MIN_S } from "./check-payment.ts"
import type { Offered } from "./claim-payment.ts"
import { refuse } from "./reasons.ts"
import type { Offer, Paid } from "./take-payment.ts"

/** An offer, and how its payer is served. */
export interface Item {
  offer: Offer
  /** Returns the body of the payer's answer. */
  serve(paid: Paid): Promise<object>
}

/**
 * A paywall, offered at the URL of the request. Throws `PAYWALL_NOT_FOUND`, `INVALID_OPERATION` if the paywall is
 * switched off, `PAYMENTS_PAUSED`.
 */
export async function paywallItem(ctx: Context, id: string, path: string): Promise<Item> {
  const paywall = await publicPaywall(ctx, id)
  const network = networkOf(ctx.chain, paywall.chain_id)
  const versions = await ctx.db
    .selectFrom("paywall_versions")
    .innerJoin("deposits", "deposits.id", "paywall_versions.deposit_id")
    .select([
      "paywall_versions.price",
      "paywall_versions.until_at",
      "deposits.id",
      "deposits.address",
      "deposits.factory",
      "deposits.older_factory",
      "deposits.resource_id",
    ])
    .where("paywall_versions.paywall_id", "=", id)
    .where(eb => eb.or([eb("paywall_versions.active", "=", true), eb("until_at", "is", null)]))
    .where(eb => eb.or([eb("until_at", "is", null), eb("until_at", ">", new Date(ctx.now().getTime() - QUOTE_MS))]))
    .orderBy("paywall_versions.n", "desc")
    .execute()
  const [current, ...earlier] = versions.map(
    ({ price, until_at, address, ...deposit }): Offered => ({
      network,
      payTo: address,
      amount: price,
      deposit,
      pricedUntil: until_at === null ? undefined : new Date(until_at.getTime() + QUOTE_MS),
    }),
  )
  if (!current) throw notForSale()
  await watch(ctx, id)
  const offer: Offer = {
    merchantId: paywall.merchant_id,
    network,
    prices: [current, ...earlier],
    sold: {
      url: `${ctx.settings.baseUrl}${path}`,
      description: paywall.description ?? paywall.name,
      mimeType: "application/json",
    },
    boundTo: [id],
    closed: paywall.active ? await pauseOf(ctx, network, current) : notForSale(),
    isRepeatable: true,
  }
  return {
    offer,
    serve: async paid => {
      if (paid.isRetry && (await isRevoked(ctx, id, paid))) throw new ApiError("ACCESS_REQUIRED")
      return contentOf(paywall, network, paid)
    },
  }
}

/** Whether the merchant revoked what a payment bought. */
async function isRevoked(ctx: Context, paywallId: string, { payer, txHash }: Paid): Promise<boolean> {
  const grant = await ctx.db
    .selectFrom("grants")
    .select("id")
    .where("paywall_id", "=", paywallId)
    .where("address", "=", payer)
    .where("tx_hash", "=", txHash)
    .where("revoked_by", "=", "merchant")
    .executeTakeFirst()
  return grant !== undefined
}

const notForSale = () =>
  new ApiError("INVALID_OPERATION", undefined, "This paywall is switched off: nothing is for sale.")

/** The error for new payments while sales at an address are paused; undefined if they are not. */
async function pauseOf(ctx: Context, network: Network, { deposit }: Offered): Promise<ApiError | undefined> {
  return deposit && (await pausedDeposits(ctx))(network, deposit) ? new ApiError("PAYMENTS_PAUSED") : undefined
}

const contentOf = (paywall: Row<"paywalls">, network: Network, paid: Paid) => ({
  paywallId: paywall.id,
  name: paywall.name,
  ...receiptOf(network, paid),
  contentType: paywall.content_type,
  contentUrl: paywall.content_url,
  contentData: paywall.content_data,
})

const receiptOf = ({ token }: Network, { payer, amount, txHash }: Paid) => ({
  payer: checksummed(payer),
  amount: formatAmount(amount, token.decimals),
  currency: token.symbol,
  txHash,
})

/**
 * A payment link. Each 402 offers a checkout, which a payment identifies by its receiving address in `payTo`. A
 * checkout that has ended accepts no new payment: the payer is asked to pay another checkout, or gets
 * `LINK_UNAVAILABLE`. Throws `LINK_NOT_FOUND`, `LINK_UNAVAILABLE`, `PAYMENTS_PAUSED`, and `VALIDATION_ERROR` if the
 * link leaves the amount open and none is given.
 */
export async function linkItem(
  ctx: Context,
  slug: string,
  path: string,
  { amount, payTo, caller }: { amount: string | undefined; payTo: Address | undefined; caller: string },
): Promise<Item> {
  const session = payTo === undefined ? await openSession(ctx, slug, amount, caller) : await sessionAt(ctx, slug, payTo)
  const network = networkOf(ctx.chain, session.chain_id)
  const deposit = await ctx.db
    .selectFrom("deposits")
    .select(["id", "address", "factory", "older_factory", "resource_id"])
    .where("resource_id", "=", session.id)
    .executeTakeFirstOrThrow()
  const link = await ctx.db.selectFrom("payment_links").selectAll().where("slug", "=", slug).executeTakeFirstOrThrow()
  const price: Offered = {
    network,
    payTo: deposit.address,
    amount: session.amount,
    deposit,
    soldUntil: session.expires_at,
  }
  const offer: Offer = {
    merchantId: session.merchant_id,
    network,
    prices: [price],
    sold: {
      url: `${ctx.settings.baseUrl}${path}`,
      description: session.description ?? link.title,
      mimeType: "application/json",
    },
    boundTo: [session.id],
    closed: await pauseOf(ctx, network, price),
    // If two agents were asked to pay the same checkout, the second one is offered another.
    ...(payTo === undefined
      ? {}
      : {
          over: (await isOver(ctx, link, session)) ? over : undefined,
          renew: async () => (await linkItem(ctx, slug, path, { amount, payTo: undefined, caller })).offer,
        }),
    isRepeatable: true,
  }
  return {
    offer,
    serve: async paid => ({
      sessionId: session.id,
      description: session.description,
      ...receiptOf(network, paid),
      receiptUrl: receiptUrl(ctx, session.id),
      redirectUrl: session.redirect_url,
    }),
  }
}

const over = refuse(
  "invalid_payment_requirements",
  "The checkout that this payment was signed for has ended. Nothing was paid: pay what the current answer asks for.",
)

/**
 * Whether a checkout accepts no new payment by an agent: it has ended, it would end before a payment is mined, its
 * link sells nothing more, or its link asks for what an agent can't answer.
 */
async function isOver(
  ctx: Context,
  link: Row<"payment_links">,
  { status, expires_at }: Row<"checkout_sessions">,
): Promise<boolean> {
  const isOpen = status === "pending" && expires_at.getTime() >= ctx.now().getTime() + Number(MIN_S) * 1_000
  return !isOpen || link.payer_fields !== null || !(await isOnSale(ctx, link))
}

/** How long the same agent is asked to pay the same checkout, so that repeated requests create no rows. */
const ASKED_MS = 600_000

/** The checkout that an agent is asked to pay: the one in its last 402, or a new one. */
async function openSession(
  ctx: Context,
  slug: string,
  amount: string | undefined,
  caller: string,
): Promise<Row<"checkout_sessions">> {
  const asked = await ctx.db
    .selectFrom("checkout_sessions as s")
    .innerJoin("payment_links as l", "l.id", "s.link_id")
    .innerJoin("deposits as d", "d.resource_id", "s.id")
    .selectAll("s")
    .select("l.amount as fixed")
    .where("l.slug", "=", slug)
    .where("l.active", "=", true)
    .where("l.payer_fields", "is", null)
    .where(eb => eb.or([eb("l.expires_at", "is", null), eb("l.expires_at", ">", ctx.now())]))
    .where(eb => eb.or([eb("l.max_uses", "is", null), eb("l.uses", "<", eb.ref("l.max_uses"))]))
    .where("s.agent", "=", true)
    .where("s.agent_caller", "=", caller)
    .where("s.status", "=", "pending")
    .where("s.created_at", ">", new Date(ctx.now().getTime() - ASKED_MS))
    .where(sql<boolean>`not exists (select from settlements p where p.resource_id = s.id)`)
    .orderBy("s.created_at", "desc")
    .executeTakeFirst()
  const network = asked && networkOf(ctx.chain, asked.chain_id)
  const isSame =
    asked !== undefined &&
    network !== undefined &&
    (asked.fixed === null
      ? amount !== undefined && readAmount("amount", amount, network.token, ctx.settings.minAmount) === asked.amount
      : asked.fixed === asked.amount)
  if (isSame) return asked
  return (await createLinkSession(ctx, { slug, ...(amount ? { amount } : {}) }, caller)).session
}

/** The link's checkout with this receiving address; throws `AUTHORIZATION_REFUSED` if there is none. */
async function sessionAt(ctx: Context, slug: string, payTo: Address): Promise<Row<"checkout_sessions">> {
  const session = await ctx.db
    .selectFrom("deposits")
    .innerJoin("checkout_sessions", "checkout_sessions.id", "deposits.resource_id")
    .innerJoin("payment_links", "payment_links.id", "checkout_sessions.link_id")
    .selectAll("checkout_sessions")
    .where("deposits.address", "=", payTo)
    .where("payment_links.slug", "=", slug)
    .where("checkout_sessions.agent", "=", true)
    .executeTakeFirst()
  if (session) return session
  throw new ApiError(
    "AUTHORIZATION_REFUSED",
    undefined,
    "The authorization pays an address that this link did not ask for. Request again without a payment, and pay what the answer asks for.",
  )
}
