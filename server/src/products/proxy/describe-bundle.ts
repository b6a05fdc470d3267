/** Describes a bundle to agents: its routes and their prices. */
import { bundleDeposit } from "../../ledger/deposits/make-bundle-deposit.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { type AmountToken, formatAmount } from "../../platform/money/amount.ts"
import { routesOf } from "./manage-bundles.ts"
import type { BundleDescription } from "./schema.ts"

/** The answer to `GET /api/p/{slug}`; undefined if no active bundle has this slug. */
export async function describeBundle(ctx: Context, slug: string): Promise<BundleDescription | undefined> {
  const row = await ctx.db
    .selectFrom("bundles")
    .selectAll()
    .where("slug", "=", slug)
    .where("active", "=", true)
    .executeTakeFirst()
  if (!row) return undefined
  const { name: chain, chainId, token } = networkOf(ctx.chain, row.chain_id)
  const { id, name, description, currency } = row
  return {
    id,
    slug,
    name,
    description,
    url: urlOf(ctx, slug),
    currency,
    chain,
    chainId,
    token: { address: checksummed(token.address), decimals: token.decimals, symbol: token.symbol },
    payTo: checksummed((await bundleDeposit(ctx, id)).address),
    routes: (await routesOf(ctx, id)).map(route => shownRoute(token, route)),
    openapi: row.openapi,
    openapiUrl: row.openapi_url,
  }
}

/** The base URL of a bundle's routes. */
export const urlOf = ({ settings }: TxContext, slug: string): string => `${settings.baseUrl}/api/p/${slug}`

/** Formats a route for merchants and agents. */
export const shownRoute = (token: AmountToken, { method, path, price, description }: Row<"bundle_routes">) => ({
  method,
  path,
  description,
  price: formatAmount(price, token.decimals),
})
