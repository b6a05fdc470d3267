/** What a merchant sells at checkouts: products, and payment links for a product or an amount. */
import { payoutAddressOn } from "../../account/identity/read-payout-addresses.ts"
import { emitAttached } from "../../ledger/splits/approve-splits.ts"
import { recipientSetOf } from "../../ledger/splits/manage-splits.ts"
import { partsFaults } from "../../ledger/splits/split.ts"
import { currencyFaults } from "../../platform/chain/currency.ts"
import { networkAsked, networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { orSlugTaken } from "../../platform/db/check-slugs.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, type ErrorDetail } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { timeAt } from "../../platform/http/time.ts"
import { newId, newSlug } from "../../platform/ids.ts"
import { formatAmount, readAmount } from "../../platform/money/amount.ts"
import type { LinkChange, LinkCreate, ProductChange, ProductCreate } from "./catalog-schema.ts"
import { changedTermsFaults, ownSplitFaults, redirectFaults, subscriptionFaults } from "./input-faults.ts"

/** Creates a product. Must be called inside a transaction. */
export async function createProduct(ctx: TxContext, merchantId: string, body: ProductCreate): Promise<Row<"products">> {
  const network = networkAsked(ctx.chain, body.chain)
  const faults = currencyFaults(network, body.currency)
  const split = await recipientSetOf(ctx, merchantId, body.splitId)
  const price = readAmount("price", asWritten(body, "price"), network.token, ctx.settings.minAmount, split?.size)
  if (typeof price !== "bigint") faults.push(price)
  faults.push(...subscriptionFaults(body, body.billingInterval !== undefined))
  if (typeof price !== "bigint" || faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  const now = ctx.now()
  const made = await ctx.db
    .insertInto("products")
    .values({
      id: newId("prod"),
      merchant_id: merchantId,
      chain_id: network.chainId,
      name: body.name,
      description: body.description ?? null,
      price,
      currency: network.token.symbol,
      split_id: body.splitId ?? null,
      active: true,
      billing_interval: body.billingInterval ?? null,
      billing_count: body.billingInterval === undefined ? null : (body.billingCount ?? 1),
      trial_days: body.trialDays ?? 0,
      max_periods: body.maxPeriods ?? null,
      created_at: now,
      updated_at: now,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  await emitAttached(ctx, merchantId, made.id, null, made.split_id)
  return made
}

/**
 * Changes the given fields; existing sessions keep their price. Throws `NOT_FOUND` for another merchant's product.
 * Must be called inside a transaction.
 */
export async function changeProduct(
  ctx: TxContext,
  merchantId: string,
  id: string,
  body: ProductChange,
): Promise<Row<"products">> {
  const before = await ownProduct(ctx, merchantId, id)
  if (!before) throw new ApiError("NOT_FOUND")
  const { token } = networkOf(ctx.chain, before.chain_id)
  const split = await recipientSetOf(ctx, merchantId, body.splitId === undefined ? before.split_id : body.splitId)
  const written = asWritten(body, "price") ?? formatAmount(before.price, token.decimals)
  const price = readAmount("price", written, token, ctx.settings.minAmount, split?.size)
  const faults = changedTermsFaults(before, body)
  if (typeof price !== "bigint") faults.push(price)
  if (typeof price !== "bigint" || faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  if (body.splitId !== undefined) await emitAttached(ctx, merchantId, id, before.split_id, body.splitId)
  const changed = await ctx.db
    .updateTable("products")
    .set({
      ...(body.name === undefined ? {} : { name: body.name }),
      ...(body.description === undefined ? {} : { description: body.description }),
      ...(body.active === undefined ? {} : { active: body.active }),
      ...(body.price === undefined ? {} : { price }),
      ...(body.splitId === undefined ? {} : { split_id: body.splitId }),
      ...(body.trialDays === undefined ? {} : { trial_days: body.trialDays }),
      ...(body.maxPeriods === undefined ? {} : { max_periods: body.maxPeriods }),
      updated_at: ctx.now(),
    })
    .where("id", "=", id)
    .returningAll()
    .executeTakeFirstOrThrow()
  if (changed.billing_interval !== null) await changeItsLinks(ctx, before, changed)
  return changed
}

/**
 * Gives the links of a recurring product its new price and split, as its renewals get them. The event of the product
 * covers its links too: one event per link would mean thousands of deliveries per request.
 */
async function changeItsLinks(ctx: TxContext, before: Row<"products">, { id, price, split_id }: Row<"products">) {
  if (price === before.price && split_id === before.split_id) return
  await ctx.db
    .updateTable("payment_links")
    .set({ amount: price, split_id, updated_at: ctx.now() })
    .where("product_id", "=", id)
    .execute()
}

/**
 * Switches a product or link off; no-op if it is already off. Throws `NOT_FOUND` for a product or link of another
 * merchant.
 */
export async function switchOff(
  ctx: Context,
  table: "products" | "payment_links",
  merchantId: string,
  id: string,
): Promise<void> {
  await inTransaction(ctx, async ({ db }) => {
    const { numUpdatedRows } = await db
      .updateTable(table)
      .set({ active: false, updated_at: ctx.now() })
      .where("id", "=", id)
      .where("merchant_id", "=", merchantId)
      .where("active", "=", true)
      .executeTakeFirst()
    if (numUpdatedRows > 0n) return
    const own = db.selectFrom(table).select("id").where("id", "=", id).where("merchant_id", "=", merchantId)
    await own.executeTakeFirstOrThrow(() => new ApiError("NOT_FOUND"))
  })
}

/** The merchant's product with this id, or undefined. */
export const ownProduct = (
  ctx: TxContext,
  merchantId: string,
  id: string,
  { isHeld = false } = {},
): Promise<Row<"products"> | undefined> =>
  ctx.db
    .selectFrom("products")
    .selectAll()
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .$if(isHeld, query => query.forShare())
    .executeTakeFirst()

/** Creates a payment link. Must be called inside a transaction. Throws `SLUG_TAKEN`, `PAYOUT_ADDRESS_REQUIRED`. */
export async function createLink(ctx: TxContext, merchantId: string, body: LinkCreate): Promise<Row<"payment_links">> {
  const faults: ErrorDetail[] = []
  // Locked, so that a concurrent change of the product is either read here or also changes this link.
  const product =
    body.productId === undefined ? undefined : await ownProduct(ctx, merchantId, body.productId, { isHeld: true })
  faults.push(...ownSplitFaults(product, body.splitId ?? undefined))
  if (body.productId !== undefined && !product?.active)
    faults.push({ path: "productId", message: "must be the id of one of your active products" })
  if (product && body.amount !== undefined)
    faults.push({ path: "amount", message: "can't be given together with `productId`: the product sets the price" })
  const chain = product ? networkOf(ctx.chain, product.chain_id).name : body.chain
  if (product && body.chain !== undefined && body.chain !== chain)
    faults.push({ path: "chain", message: `must be ${chain}, the network of the product` })
  const network = networkAsked(ctx.chain, chain)
  faults.push(...currencyFaults(network, body.currency))
  const splitId = body.splitId ?? product?.split_id ?? null
  const split = await recipientSetOf(ctx, merchantId, splitId)
  const amount =
    product?.price ??
    (body.amount === undefined
      ? null
      : readAmount("amount", asWritten(body, "amount"), network.token, ctx.settings.minAmount, split?.size))
  if (amount !== null && typeof amount !== "bigint") faults.push(amount)
  // The product's price was checked against the product's own split, but the link may have another split.
  else faults.push(...partsFaults(ctx.settings.minAmount, network, amount, split))
  faults.push(...redirectFaults(body.redirectUrl))
  if ((amount !== null && typeof amount !== "bigint") || faults.length > 0)
    throw new ApiError("VALIDATION_ERROR", faults)
  // The link's sessions need a payout address, so it must already exist.
  await payoutAddressOn(ctx, merchantId, network)
  const now = ctx.now()
  const inserted = ctx.db
    .insertInto("payment_links")
    .values({
      id: newId("plink"),
      merchant_id: merchantId,
      chain_id: network.chainId,
      slug: body.slug ?? newSlug(),
      title: body.title,
      description: body.description ?? null,
      amount,
      currency: network.token.symbol,
      product_id: product?.id ?? null,
      split_id: splitId,
      redirect_url: body.redirectUrl ?? null,
      max_uses: body.maxUses ?? null,
      expires_at: body.expiresAt ? timeAt("expiresAt", body.expiresAt) : null,
      payer_fields: fieldsCell(body.payerFields),
      active: true,
      created_at: now,
      updated_at: now,
    })
    .returningAll()
    .executeTakeFirstOrThrow()
  const made = await orSlugTaken(inserted)
  await emitAttached(ctx, merchantId, made.id, null, made.split_id)
  return made
}

const fieldsCell = (names: readonly string[] = []): string | null => (names.length > 0 ? JSON.stringify(names) : null)

/** Changes the given fields. Must be called inside a transaction. Throws `NOT_FOUND` for another merchant's link. */
export async function changeLink(
  ctx: TxContext,
  merchantId: string,
  id: string,
  body: LinkChange,
): Promise<Row<"payment_links">> {
  const faults = redirectFaults(body.redirectUrl)
  if (body.splitId !== undefined) faults.push(...ownSplitFaults(await productOfLink(ctx, merchantId, id), body.splitId))
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  const split = await recipientSetOf(ctx, merchantId, body.splitId)
  if (split) await assertLinkDivisible(ctx, merchantId, id, split)
  const before = body.splitId === undefined ? undefined : await ownLinkById(ctx, merchantId, id)
  const changed = await ctx.db
    .updateTable("payment_links")
    .set({
      ...(body.title === undefined ? {} : { title: body.title }),
      ...(body.splitId === undefined ? {} : { split_id: body.splitId }),
      ...(body.description === undefined ? {} : { description: body.description }),
      ...(body.redirectUrl === undefined ? {} : { redirect_url: body.redirectUrl }),
      ...(body.maxUses === undefined ? {} : { max_uses: body.maxUses }),
      ...(body.expiresAt === undefined
        ? {}
        : { expires_at: body.expiresAt === null ? null : timeAt("expiresAt", body.expiresAt) }),
      ...(body.payerFields === undefined ? {} : { payer_fields: fieldsCell(body.payerFields) }),
      ...(body.active === undefined ? {} : { active: body.active }),
      updated_at: ctx.now(),
    })
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    // A limit can't be below the uses already counted.
    .$if(typeof body.maxUses === "number", query => query.where("uses", "<=", body.maxUses ?? 0))
    .returningAll()
    .executeTakeFirst()
  if (changed && before) await emitAttached(ctx, merchantId, id, before.split_id, changed.split_id)
  if (changed) return changed
  const link = await ctx.db
    .selectFrom("payment_links")
    .select("uses")
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!link) throw new ApiError("NOT_FOUND")
  throw new ApiError("VALIDATION_ERROR", [
    { path: "maxUses", message: `must be at least ${link.uses}, the number of times that the link was already used` },
  ])
}

async function productOfLink(ctx: TxContext, merchantId: string, id: string): Promise<Row<"products"> | undefined> {
  const productId = (await ownLinkById(ctx, merchantId, id))?.product_id
  return productId ? await ownProduct(ctx, merchantId, productId) : undefined
}

async function assertLinkDivisible(
  ctx: TxContext,
  merchantId: string,
  id: string,
  split: { size: number },
): Promise<void> {
  const link = await ctx.db
    .selectFrom("payment_links")
    .select(["amount", "chain_id"])
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!link) throw new ApiError("NOT_FOUND")
  const faults = partsFaults(ctx.settings.minAmount, networkOf(ctx.chain, link.chain_id), link.amount, split)
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
}

/** The merchant's link with this id, or undefined. */
export const ownLinkById = (
  ctx: TxContext,
  merchantId: string,
  id: string,
): Promise<Row<"payment_links"> | undefined> =>
  ctx.db
    .selectFrom("payment_links")
    .selectAll()
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()

/**
 * Whether a link can be paid: it is switched on, not expired and not used up, and its recurring product, if any, is
 * active.
 */
export async function isOnSale(ctx: TxContext, link: Row<"payment_links">): Promise<boolean> {
  const isLinkOffered = isOffered(ctx.now(), link, undefined)
  if (!isLinkOffered || link.product_id === null) return isLinkOffered
  const product = await ctx.db
    .selectFrom("products")
    .select(["active", "billing_interval"])
    .where("id", "=", link.product_id)
    .executeTakeFirstOrThrow()
  return isOffered(ctx.now(), link, product)
}

/** Whether a link can be paid, for a link and product that were already read; pure. */
export function isOffered(
  now: Date,
  { active, expires_at, max_uses, uses }: Pick<Row<"payment_links">, "active" | "expires_at" | "max_uses" | "uses">,
  product: Pick<Row<"products">, "active" | "billing_interval"> | undefined,
): boolean {
  if (!active || (expires_at !== null && expires_at <= now)) return false
  if (max_uses !== null && uses >= max_uses) return false
  return product === undefined || product.active || product.billing_interval === null
}
