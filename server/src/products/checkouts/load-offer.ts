/**
 * Reads, in one statement, what a new checkout depends on: the link or product, the merchant's payout address, and
 * whether payments are paused.
 */
import { sql } from "kysely"
import { type Approver, approverAddress } from "../../ledger/deposits/find-parties.ts"
import type { Parties } from "../../ledger/deposits/make-deposits.ts"
import { type HaltedWallets, haltedWalletsCell } from "../../ledger/payouts/check-paused.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import { columnsOf, partOf } from "../../platform/db/joined-columns.ts"
import type { Db } from "../../platform/db/open.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"

const OF_LINK = [
  "id",
  "merchant_id",
  "chain_id",
  "slug",
  "title",
  "description",
  "amount",
  "product_id",
  "split_id",
  "redirect_url",
  "max_uses",
  "uses",
  "expires_at",
  "active",
  "payer_fields",
] as const satisfies readonly (keyof Row<"payment_links">)[]
/** The columns of a link that its checkouts depend on. */
export type OfferedLink = Pick<Row<"payment_links">, (typeof OF_LINK)[number]>

const OF_PRODUCT = [
  "id",
  "name",
  "chain_id",
  "price",
  "split_id",
  "active",
  "billing_interval",
  "billing_count",
  "trial_days",
  "max_periods",
] as const satisfies readonly (keyof Row<"products">)[]
/** The columns of a product that its checkouts depend on. */
export type OfferedProduct = Pick<Row<"products">, (typeof OF_PRODUCT)[number]>

/** What a buyer asks for: a link by its slug (of this merchant, if given), this merchant's product, or an amount. */
export type Asked =
  | { slug: string; merchantId?: string; productId?: never; chainId?: never }
  | { merchantId: string; productId?: string | undefined; chainId?: number | undefined; slug?: never }

/** What a new checkout depends on, from one snapshot. */
export interface Offer {
  link: OfferedLink | undefined
  /** The requested product, or the product of the requested link. */
  product: OfferedProduct | undefined
  /** The merchant's payout address; null if there is none on the network. */
  owner: Address | null
  approver: Approver | null
  halted: HaltedWallets | null
}

/** Reads an offer. The offer uses the network of the link or product, or else `chainId`. */
export async function loadOffer(ctx: TxContext, asked: Asked): Promise<Offer> {
  const offer = await offerOf(ctx.db, asked)
  if (!offer) throw new Error("a statement has no row of what it was asked")
  return offer
}

type OfferRow = Pick<Offer, "owner" | "approver" | "halted"> & { n: number } & Record<string, unknown>

const offerOf = gatherRows(async (db: Db, all: readonly Asked[]) => {
  const wanted = all.map(({ merchantId: merchant, slug, productId: product, chainId: chain }, n) => {
    return { n, merchant, slug, product, chain }
  })
  const { rows } = await sql<OfferRow>`
    select /* named: offers */ k.n, ${columnsOf("l", OF_LINK)}, ${columnsOf("p", OF_PRODUCT)}, a.address as owner, m.approver,
      ${haltedWalletsCell} as halted
    from (${rowsParameter(wanted, "n integer, merchant text, slug text, product text, chain integer")}) k
      left join payment_links l on l.slug = k.slug and (k.merchant is null or l.merchant_id = k.merchant)
      left join products p on p.id = coalesce(k.product, l.product_id) and p.merchant_id = coalesce(k.merchant, l.merchant_id)
      left join merchants m on m.id = coalesce(k.merchant, l.merchant_id)
      left join payout_addresses a on a.merchant_id = m.id and a.chain_id = coalesce(l.chain_id, p.chain_id, k.chain)`.execute(
    db,
  )
  return new Map(
    rows.flatMap((row): [Asked, Offer][] => {
      const { owner, approver, halted } = row
      const of = all[row.n]
      const link = partOf<OfferedLink>(row, "l", OF_LINK)
      return of ? [[of, { link, product: partOf<OfferedProduct>(row, "p", OF_PRODUCT), owner, approver, halted }]] : []
    }),
  )
})

/** The payee of an offer's new address; throws `PAYOUT_ADDRESS_REQUIRED` without a payout address. */
export function sellerOf(
  ctx: TxContext,
  { owner, approver }: Offer,
  network: NetworkInfo,
): Pick<Parties, "owner" | "approver"> {
  if (owner === null) throw new ApiError("PAYOUT_ADDRESS_REQUIRED")
  return { owner, approver: approverAddress(ctx, approver, owner, network.depositFactory) }
}
