/** Creates, changes and switches off a merchant's bundles. */
import { isDeepStrictEqual } from "node:util"
import { sql } from "kysely"
import type { Approval } from "../../account/identity/check-wallet-lock.ts"
import { payoutAddressOn } from "../../account/identity/read-payout-addresses.ts"
import { receiverFault } from "../../account/webhooks/webhook.ts"
import { approverOf } from "../../ledger/deposits/find-parties.ts"
import { moveBundleDeposit } from "../../ledger/deposits/make-bundle-deposit.ts"
import { makeStandingDeposit } from "../../ledger/deposits/make-deposits.ts"
import { assertSelling } from "../../ledger/payouts/check-paused.ts"
import { emitAttached } from "../../ledger/splits/approve-splits.ts"
import { recipientSetOf } from "../../ledger/splits/manage-splits.ts"
import { currencyFaults } from "../../platform/chain/currency.ts"
import { type NetworkInfo, networkAsked, networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { orSlugTaken } from "../../platform/db/check-slugs.ts"
import { lockMerchant } from "../../platform/db/lock-merchant.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, type ErrorDetail, invalid } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { newId, newSlug } from "../../platform/ids.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { seal } from "../../platform/secrets.ts"
import { type CheckedRoute, headerFaults, openapiFaults, originFaults, readRoutes, storedOrigin } from "./bundle.ts"
import { type BundleChange, type BundleCreate, MAX_HEADERS, type RoutesInput } from "./schema.ts"

/** The most bundles of a merchant, because each bundle in use has an address that is scanned. */
const MAX_BUNDLES = 100

/**
 * Creates a bundle with its own receiving address. Must be called inside a transaction. Throws `PAYMENTS_PAUSED`,
 * `SLUG_TAKEN`.
 */
export async function createBundle(ctx: TxContext, merchantId: string, body: BundleCreate): Promise<Row<"bundles">> {
  // Locked until the commit, so that this transaction and a concurrent change of the payout address see each other.
  await lockMerchant(ctx.db, merchantId)
  const network = networkAsked(ctx.chain, body.chain)
  const split = await recipientSetOf(ctx, merchantId, body.splitId)
  const { routes, faults } = checked(ctx, network, body, split?.size)
  faults.push(...currencyFaults(network, body.currency))
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  await assertSelling(ctx, network)
  await assertRoom(ctx, merchantId)
  const owner = await payoutAddressOn(ctx, merchantId, network)
  const now = ctx.now()
  const inserted = ctx.db
    .insertInto("bundles")
    .values({
      id: newId("bdl"),
      merchant_id: merchantId,
      chain_id: network.chainId,
      slug: body.slug ?? newSlug(),
      name: body.name,
      description: body.description ?? null,
      origin_url: storedOrigin(body.originUrl),
      currency: network.token.symbol,
      split_id: body.splitId ?? null,
      active: true,
      listed: body.listed ?? false,
      openapi: body.openapi ? JSON.stringify(body.openapi) : null,
      openapi_url: body.openapiUrl ?? null,
      version: 1,
      created_at: now,
      updated_at: now,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  const made = await orSlugTaken(inserted)
  await writeRoutes(ctx, made.id, routes)
  await writeHeaders(ctx, made.id, body.originHeaders ?? {})
  const approver = await approverOf(ctx, network, merchantId, owner)
  await makeStandingDeposit(ctx, network, made.id, { owner, approver, recipientSetId: split?.setId ?? null })
  await emitAttached(ctx, merchantId, made.id, null, made.split_id)
  return made
}

/** Changes the given fields. A new split needs an `approval`. Throws `NOT_FOUND` for another merchant's bundle. */
export async function changeBundle(
  ctx: Context,
  merchantId: string,
  id: string,
  body: BundleChange,
  approval: Approval,
): Promise<Row<"bundles">> {
  return await orSlugTaken(
    inTransaction(ctx, async ctx => {
      await approval.hold(ctx)
      // Splits are locked before the bundles that use them.
      const { split_id } = await readBundle(ctx, merchantId, id)
      const split = await recipientSetOf(ctx, merchantId, body.splitId === undefined ? split_id : body.splitId)
      const before = found(await own(ctx, merchantId, id).forNoKeyUpdate().executeTakeFirst())
      const network = networkOf(ctx.chain, before.chain_id)
      const kept = body.routes ?? (body.splitId ? await routesInput(ctx, network, id) : [])
      const { routes, faults } = checked(ctx, network, { ...body, routes: kept }, split?.size)
      if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
      if (body.routes) await writeRoutes(ctx, id, routes)
      // Headers may hold credentials for the old host. They are deleted, so that moving a bundle to another host does
      // not reveal those credentials.
      if (body.originUrl !== undefined && originOf(body.originUrl) !== originOf(before.origin_url))
        await ctx.db.deleteFrom("bundle_headers").where("bundle_id", "=", id).execute()
      await writeHeaders(ctx, id, body.originHeaders ?? {})
      // The address commits to the payees, so a new split needs a new address.
      if (body.splitId !== undefined && body.splitId !== before.split_id)
        await moveBundleDeposit(ctx, network, id, { recipientSetId: split?.setId ?? null })
      if (body.splitId !== undefined) await emitAttached(ctx, merchantId, id, before.split_id, body.splitId)
      return await writeChange(ctx, before, body)
    }),
  )
}

const originOf = (url: string): string => new URL(url).origin

async function writeChange(ctx: TxContext, before: Row<"bundles">, body: BundleChange): Promise<Row<"bundles">> {
  return await ctx.db
    .updateTable("bundles")
    .set({
      version: before.version + 1,
      updated_at: ctx.now(),
      ...(body.name === undefined ? {} : { name: body.name }),
      ...(body.slug === undefined ? {} : { slug: body.slug }),
      ...(body.description === undefined ? {} : { description: body.description }),
      ...(body.originUrl === undefined ? {} : { origin_url: storedOrigin(body.originUrl) }),
      ...(body.active === undefined ? {} : { active: body.active }),
      ...(body.listed === undefined ? {} : { listed: body.listed }),
      ...(body.openapi === undefined ? {} : { openapi: body.openapi && JSON.stringify(body.openapi) }),
      ...(body.openapiUrl === undefined ? {} : { openapi_url: body.openapiUrl }),
      ...(body.splitId === undefined ? {} : { split_id: body.splitId }),
    })
    .where("id", "=", before.id)
    .returningAll()
    .executeTakeFirstOrThrow()
}

/** Switches a bundle off; no-op if it is already off. Throws `NOT_FOUND` for another merchant's bundle. */
export async function switchOffBundle(ctx: Context, merchantId: string, id: string): Promise<void> {
  await inTransaction(ctx, async ctx => {
    const { numUpdatedRows } = await ctx.db
      .updateTable("bundles")
      .set(eb => ({ active: false, version: eb("version", "+", 1), updated_at: ctx.now() }))
      .where("id", "=", id)
      .where("merchant_id", "=", merchantId)
      .where("active", "=", true)
      .executeTakeFirst()
    if (numUpdatedRows === 0n) await readBundle(ctx, merchantId, id)
  })
}

/** Returns the merchant's bundle; throws `NOT_FOUND` for another merchant's. */
export const readBundle = async (ctx: TxContext, merchantId: string, id: string): Promise<Row<"bundles">> =>
  found(await own(ctx, merchantId, id).executeTakeFirst())

const own = (ctx: TxContext, merchantId: string, id: string) =>
  ctx.db.selectFrom("bundles").selectAll().where("id", "=", id).where("merchant_id", "=", merchantId)

function found<T>(row: T | undefined): T {
  if (row === undefined) throw new ApiError("NOT_FOUND")
  return row
}

/** The routes of a bundle, in the order in which they were given. */
export const routesOf = (ctx: TxContext, id: string): Promise<Row<"bundle_routes">[]> =>
  ctx.db.selectFrom("bundle_routes").selectAll().where("bundle_id", "=", id).orderBy("n").execute()

/** The names of the headers that are added to requests, sorted. */
export async function headerNames(ctx: TxContext, id: string): Promise<string[]> {
  const rows = ctx.db.selectFrom("bundle_headers").select("name").where("bundle_id", "=", id).orderBy("name")
  return (await rows.execute()).map(row => row.name)
}

async function routesInput(ctx: TxContext, network: NetworkInfo, id: string): Promise<RoutesInput> {
  const routes = await routesOf(ctx, id)
  return routes.map(({ method, path, price, description }) => ({
    method,
    path,
    description,
    price: formatAmount(price, network.token.decimals),
  }))
}

function checked(
  { settings }: TxContext,
  network: NetworkInfo,
  body: BundleChange & { routes: RoutesInput },
  recipients: number | undefined,
): { routes: CheckedRoute[]; faults: ErrorDetail[] } {
  const written = body.routes.map(route => ({ ...route, price: asWritten(route, "price") }))
  const rules = { token: network.token, least: settings.minAmount, recipients }
  const { routes, faults } = readRoutes(written, rules)
  const url = body.originUrl
  const fault = url === undefined ? undefined : receiverFault(settings, url)
  if (fault) faults.push({ path: "originUrl", message: fault })
  else if (url !== undefined) faults.push(...originFaults(url, settings.baseUrl))
  faults.push(...headerFaults(body.originHeaders ?? {}), ...openapiFaults(body.openapi))
  return { routes, faults }
}

async function assertRoom(ctx: TxContext, merchantId: string): Promise<void> {
  const { total } = await ctx.db
    .selectFrom("bundles")
    .select(sql<number>`count(*)::int`.as("total"))
    .where("merchant_id", "=", merchantId)
    .executeTakeFirstOrThrow()
  if (total >= MAX_BUNDLES)
    throw invalid("", `You already have ${MAX_BUNDLES} bundles. Change one that you no longer need.`)
}

async function writeRoutes(ctx: TxContext, id: string, routes: readonly CheckedRoute[]): Promise<void> {
  const rows = routes.map((route, n) => ({ bundle_id: id, n, ...route }))
  // Unchanged routes are not rewritten, because the audit log would show that as a change.
  if (isDeepStrictEqual(rows, await routesOf(ctx, id))) return
  await ctx.db.deleteFrom("bundle_routes").where("bundle_id", "=", id).execute()
  if (rows.length === 0) return
  await ctx.db.insertInto("bundle_routes").values(rows).execute()
}

/** Adds or replaces headers, and deletes those whose value is null. */
async function writeHeaders(ctx: TxContext, id: string, given: Readonly<Record<string, string | null>>): Promise<void> {
  for (const [asGiven, value] of Object.entries(given)) {
    const name = asGiven.toLowerCase()
    if (value === null) {
      await ctx.db.deleteFrom("bundle_headers").where("bundle_id", "=", id).where("name", "=", name).execute()
      continue
    }
    const sealed = seal(ctx.settings.secretKeys, "origin-header", sealedFor(id, name), value)
    await ctx.db
      .insertInto("bundle_headers")
      .values({ bundle_id: id, name, sealed })
      .onConflict(conflict => conflict.columns(["bundle_id", "name"]).doUpdateSet({ sealed }))
      .execute()
  }
  if ((await headerNames(ctx, id)).length > MAX_HEADERS)
    throw invalid("originHeaders", `must have at most ${MAX_HEADERS} headers, including the existing ones`)
}

/** The context to which a sealed header is bound, so that it can be decrypted only for its own bundle and name. */
export const sealedFor = (bundleId: string, name: string): string => `${bundleId} ${name}`
