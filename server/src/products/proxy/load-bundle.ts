/** Loads bundles for calls, by slug, with parsed routes and decrypted headers. Bundles are cached until they change. */
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { unseal } from "../../platform/secrets.ts"
import { sealedFor } from "./manage-bundles.ts"
import { type Method, readTemplate, type Template } from "./match-route.ts"

export interface CallRoute {
  method: Method
  path: string
  template: Template
  /** In base units; a route with price zero is free. */
  price: bigint
  description: string | null
}

export interface CallBundle {
  id: string
  merchantId: string
  chainId: number
  slug: string
  name: string
  originUrl: string
  routes: readonly CallRoute[]
  /** The headers that are added to each request, with names in lower case. */
  headers: Readonly<Record<string, string>>
}

/** The most bundles that are cached. Each takes at most about 100 KB, usually about 1 KB. */
const MAX_KNOWN = 500

/** Finds the active bundle with this slug, or undefined. */
export type FindBundle = (ctx: Context, slug: string) => Promise<CallBundle | undefined>

/**
 * Creates a finder that caches bundles. Each call makes one small query, and reads the whole bundle only if its
 * version changed.
 */
export function bundleFinder(): FindBundle {
  const known = new Map<string, { version: number; bundle: CallBundle }>()
  return async (ctx, slug) => {
    const row = await ctx.db
      .selectFrom("bundles")
      .select(["id", "version", "active"])
      .where("slug", "=", slug)
      .executeTakeFirst()
    if (!row?.active) return undefined
    const before = known.get(row.id)
    if (before?.version === row.version) return before.bundle
    const read = await readWhole(ctx, row.id)
    if (!read) return undefined
    if (known.size >= MAX_KNOWN) known.clear()
    known.set(row.id, read)
    return read.bundle
  }
}

type Whole = Row<"bundles"> & {
  routes: { method: Method; path: string; price: string; description: string | null }[] | null
  headers: Record<string, string> | null
}

/** Read in one statement, so that routes, headers and version are consistent. */
async function readWhole(ctx: Context, id: string): Promise<{ version: number; bundle: CallBundle } | undefined> {
  const { rows } = await sql<Whole>`
    select b.id, b.merchant_id, b.chain_id, b.slug, b.name, b.origin_url, b.version,
      (select json_agg(json_build_object('method', r.method, 'path', r.path, 'price', r.price::text,
        'description', r.description) order by r.n) from bundle_routes r where r.bundle_id = b.id) as routes,
      (select json_object_agg(h.name, h.sealed) from bundle_headers h where h.bundle_id = b.id) as headers
    from bundles b where b.id = ${id}`.execute(ctx.db)
  const [row] = rows
  if (!row) return undefined
  const opened = (name: string, sealed: string) =>
    unseal(ctx.settings.secretKeys, "origin-header", sealedFor(id, name), sealed)
  const bundle = {
    id,
    merchantId: row.merchant_id,
    chainId: row.chain_id,
    slug: row.slug,
    name: row.name,
    originUrl: row.origin_url,
    routes: (row.routes ?? []).flatMap(({ price, ...route }): CallRoute[] => {
      const template = readTemplate(route.path)
      return typeof template === "string" ? [] : [{ ...route, template, price: BigInt(price) }]
    }),
    headers: Object.fromEntries(
      Object.entries(row.headers ?? {}).map(([name, sealed]) => [name, opened(name, sealed)]),
    ),
  }
  return { version: row.version, bundle }
}
