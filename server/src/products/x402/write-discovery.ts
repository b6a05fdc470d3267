/**
 * `/.well-known/x402`: those of this installation's offers for agents that merchants chose to list. No specification
 * is final yet. The document has the fields that its readers expect: `resources` (x402scan), and `items` in the form
 * of the facilitators' discovery API.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context } from "../../platform/context.ts"
import { requirementsV2 } from "./protocol.ts"

/**
 * The most offers of each kind, newest first, because readers load the whole document. Merchants take turns.
 * Otherwise, a merchant with ten thousand routes would displace all others.
 */
const MOST = 500

interface Listed {
  path: string
  chain_id: number
  price: bigint
  pay_to: Address
  description: string
  updated_at: Date
}

/** Builds the document, with current prices. */
export async function discoveryDocument(ctx: Context) {
  const { baseUrl } = ctx.settings
  const items = [...(await listedPaywalls(ctx)), ...(await listedRoutes(ctx))].map(row => {
    const network = networkOf(ctx.chain, row.chain_id)
    return {
      resource: `${baseUrl}${row.path}`,
      type: "http" as const,
      x402Version: 2,
      accepts: [requirementsV2({ network, payTo: row.pay_to, amount: row.price })],
      description: row.description,
      lastUpdated: row.updated_at.toISOString(),
    }
  })
  return { version: 1, x402Version: 2, resources: items.map(({ resource }) => resource), items }
}

async function listedPaywalls(ctx: Context): Promise<Listed[]> {
  const rows = await ctx.db
    .selectFrom("paywalls")
    .innerJoin("paywall_versions", "paywall_versions.paywall_id", "paywalls.id")
    .innerJoin("deposits", "deposits.id", "paywall_versions.deposit_id")
    .select(["paywalls.id", "paywalls.slug", "paywalls.name", "paywalls.description", "paywalls.chain_id"])
    .select(["paywalls.price", "paywalls.updated_at", "deposits.address as pay_to"])
    .where("paywall_versions.until_at", "is", null)
    .where("paywalls.active", "=", true)
    .where("paywalls.listed", "=", true)
    // A paywall without a slug is bought by a POST, which known readers can't learn from the document.
    .where("paywalls.slug", "is not", null)
    .orderBy(sql`row_number() over (partition by paywalls.merchant_id order by paywalls.updated_at desc)`)
    .orderBy("paywalls.updated_at", "desc")
    .limit(MOST)
    .execute()
  return rows.map(({ slug, name, description, ...row }) => ({
    ...row,
    path: `/api/p/${slug}`,
    description: description ?? name,
  }))
}

/** The priced routes that any client can call as they are: GET, without path parameters. */
async function listedRoutes(ctx: Context): Promise<Listed[]> {
  const rows = await ctx.db
    .selectFrom("bundles")
    .innerJoin("bundle_routes", "bundle_routes.bundle_id", "bundles.id")
    .innerJoinLateral(
      eb =>
        eb
          .selectFrom("deposits")
          .select("address")
          .whereRef("deposits.resource_id", "=", "bundles.id")
          .orderBy("deposits.id", "desc")
          .limit(1)
          .as("paid"),
      join => join.onTrue(),
    )
    .select(["bundles.slug", "bundles.name", "bundles.chain_id", "bundles.updated_at", "paid.address as pay_to"])
    .select(["bundle_routes.path", "bundle_routes.price", "bundle_routes.description"])
    .where("bundles.active", "=", true)
    .where("bundles.listed", "=", true)
    .where("bundle_routes.method", "=", "GET")
    .where("bundle_routes.price", ">", 0n)
    .where("bundle_routes.path", "not like", "%:%")
    .orderBy(
      sql`row_number() over (partition by bundles.merchant_id order by bundles.updated_at desc, bundle_routes.n)`,
    )
    .orderBy("bundles.updated_at", "desc")
    .orderBy("bundle_routes.n")
    .limit(MOST)
    .execute()
  return rows.map(({ slug, name, path, description, ...row }) => ({
    ...row,
    path: `/api/p/${slug}${path}`,
    description: description ?? name,
  }))
}
