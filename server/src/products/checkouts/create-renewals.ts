/** Creates the sessions for the next periods of all subscriptions that one transaction advances. */
import { sellersOn } from "../../ledger/deposits/find-parties.ts"
import { makeDeposits, type Parties } from "../../ledger/deposits/make-deposits.ts"
import { pausedDeposits } from "../../ledger/payouts/check-paused.ts"
import { recipientSetsOf } from "../../ledger/splits/manage-splits.ts"
import { partsFaults } from "../../ledger/splits/split.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { beginTrace } from "../../platform/tracing/trace.ts"
import { depositOf, type SessionTerms, sessionRow } from "./write-session.ts"

/** A period to bill, with its product's current price and split. */
export interface Renewal {
  product: Row<"products">
  /**
   * The session of the previous period. Its redirect, callback, metadata and payer fields are copied to the new
   * session.
   */
  before: Pick<Row<"checkout_sessions">, "redirect_url" | "callback_url" | "metadata" | "payer_fields">
  customerEmail: string | null
  expiresAt: Date
}

/** Why a product can't be billed now. */
export type BlockedBy = NonNullable<Row<"subscriptions">["blocked_by"]>

/**
 * Creates the sessions for these renewals. Returns, in the same order, each session or the reason why the session
 * can't be created now.
 */
export async function createRenewals(
  ctx: TxContext,
  renewals: readonly Renewal[],
): Promise<(Row<"checkout_sessions"> | BlockedBy)[]> {
  if (renewals.length === 0) return []
  const offers = await offersOf(ctx, new Map(renewals.map(({ product }) => [product.id, product])))
  const planned = renewals.map(renewal => {
    const offer = offers.get(renewal.product.id) ?? "price"
    if (typeof offer === "string") return offer
    return { offer, row: renewalRow(ctx, offer.terms, renewal) }
  })
  const made = planned.flatMap(each => (typeof each === "string" ? [] : [each]))
  if (made.length === 0) return planned.flatMap(each => (typeof each === "string" ? [each] : []))
  const rows = made.map(({ row }) => row)
  const sessions = await ctx.db.insertInto("checkout_sessions").values(rows).returningAll().execute()
  // Nobody has a renewal's page open yet, so the renewal's address is not watched.
  const deposits = made.map(({ offer: { terms, parties }, row }) => ({
    network: terms.network,
    ...depositOf(row),
    ...parties,
    watchedMs: 0,
  }))
  await makeDeposits(ctx, deposits)
  const byId = new Map(sessions.map(session => [session.id, session]))
  return planned.map(each => {
    if (typeof each === "string") return each
    const session = byId.get(each.row.id)
    if (!session) throw new Error("a renewal's session was not made")
    return session
  })
}

function renewalRow(ctx: TxContext, terms: SessionTerms, { product, before, customerEmail, expiresAt }: Renewal) {
  const row = sessionRow(ctx, product.merchant_id, terms, {
    description: product.name,
    expiresAt,
    ...(before.redirect_url === null ? {} : { redirectUrl: before.redirect_url }),
    ...(before.callback_url === null ? {} : { callbackUrl: before.callback_url }),
    ...(before.metadata === null ? {} : { metadata: before.metadata }),
    ...(before.payer_fields === null ? {} : { payerFields: before.payer_fields }),
    ...(customerEmail === null ? {} : { customerEmail }),
  })
  // No request created this session, so it starts its own trace.
  const attributes = { "sluice.resource.id": row.id, "sluice.network": terms.network.name }
  return { ...row, traceparent: beginTrace(ctx, "renew subscription", { attributes }) }
}

interface Offer {
  terms: SessionTerms
  parties: Parties
}

/** The current terms and payees of each product, or the reason why the product can't be sold. */
async function offersOf(
  ctx: TxContext,
  products: ReadonlyMap<string, Row<"products">>,
): Promise<Map<string, Offer | BlockedBy>> {
  const all = [...products.values()]
  const isPausedAt = await pausedDeposits(ctx)
  const sets = await recipientSetsOf(
    ctx,
    all.flatMap(({ split_id }) => split_id ?? []),
  )
  const sellerOf = await sellersOn(
    ctx,
    all.map(({ merchant_id }) => merchant_id),
  )
  return new Map(
    all.map((product): [string, Offer | BlockedBy] => {
      const { id, merchant_id, chain_id, price: amount, split_id: splitId } = product
      const network = networkOf(ctx.chain, chain_id)
      const set = splitId === null ? undefined : sets.get(splitId)
      if (isPausedAt(network, { factory: network.depositFactory, older_factory: false })) return [id, "payments_paused"]
      const seller = sellerOf(merchant_id, network)
      if (!seller) return [id, "payout_address"]
      const size = set?.size ?? 1
      if (partsFaults(ctx.settings.minAmount, network, amount, { size }).length > 0) return [id, "price"]
      const terms = { network, amount, link: undefined, product, splitId, setId: set?.setId }
      return [id, { terms, parties: { ...seller, recipientSetId: set?.setId ?? null } }]
    }),
  )
}
