/** Creates and changes a merchant's paywalls, and revokes grants. */
import type { Approval } from "../../account/identity/check-wallet-lock.ts"
import { payoutAddressOn } from "../../account/identity/read-payout-addresses.ts"
import { approverOf } from "../../ledger/deposits/find-parties.ts"
import { makeStandingDeposit } from "../../ledger/deposits/make-deposits.ts"
import { moveDeposit, openVersion } from "../../ledger/deposits/move-deposits.ts"
import { assertSelling } from "../../ledger/payouts/check-paused.ts"
import { emitAttached, type SplitChange } from "../../ledger/splits/approve-splits.ts"
import { recipientSetOf } from "../../ledger/splits/manage-splits.ts"
import { currencyFaults } from "../../platform/chain/currency.ts"
import { networkAsked, networkOf } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { orSlugTaken } from "../../platform/db/check-slugs.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { asWritten } from "../../platform/http/json.ts"
import { newId } from "../../platform/ids.ts"
import { formatAmount, readAmount } from "../../platform/money/amount.ts"
import { ownProduct } from "../checkouts/manage-catalog.ts"
import { subscriptionFaults } from "./check-subscription.ts"
import { contentFaults, defaultDuration, durationAfter } from "./paywall.ts"
import { paidNow } from "./queries.ts"
import { foldAccess, lockAccess } from "./read-access.ts"
import type { PaywallChange, PaywallCreate } from "./schema.ts"

/** Creates a paywall with its own receiving address. Throws `PAYMENTS_PAUSED`. Must be called inside a transaction. */
export async function createPaywall(ctx: TxContext, merchantId: string, body: PaywallCreate): Promise<Row<"paywalls">> {
  const network = networkAsked(ctx.chain, body.chain)
  const split = await recipientSetOf(ctx, merchantId, body.splitId)
  const faults = [...currencyFaults(network, body.currency), ...contentFaults(body)]
  faults.push(...(await subscriptionFaults(ctx, merchantId, network, body.subscriptionProductId)))
  const price = readAmount("price", asWritten(body, "price"), network.token, ctx.settings.minAmount, split?.size)
  if (typeof price !== "bigint") faults.push(price)
  if (typeof price !== "bigint" || faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)

  await assertSelling(ctx, network)
  // Locked until the commit, so that this transaction and a concurrent change of the payout address see each other.
  await ctx.db.selectFrom("merchants").select("id").where("id", "=", merchantId).forShare().execute()
  const owner = await payoutAddressOn(ctx, merchantId, network)
  const now = ctx.now()
  const pricingModel = body.pricingModel ?? "one_time"
  const paywall = await orSlugTaken(
    ctx.db
      .insertInto("paywalls")
      .values({
        id: newId("pw"),
        merchant_id: merchantId,
        chain_id: network.chainId,
        name: body.name,
        price,
        currency: network.token.symbol,
        description: body.description ?? null,
        content_type: body.contentType ?? "content",
        content_data: body.contentData ? JSON.stringify(body.contentData) : null,
        content_url: body.contentUrl ?? null,
        pricing_model: pricingModel,
        access_duration_s: durationAfter({ pricingModel, durationS: defaultDuration(pricingModel) }, body),
        slug: body.slug ?? null,
        listed: body.listed ?? false,
        subscription_product_id: body.subscriptionProductId ?? null,
        split_id: body.splitId ?? null,
        active: true,
        created_at: now,
        updated_at: now,
      })
      .returningAll()
      .executeTakeFirstOrThrow(),
  )
  const approver = await approverOf(ctx, network, merchantId, owner)
  const parties = { owner, approver, recipientSetId: split?.setId ?? null }
  const deposit = await makeStandingDeposit(ctx, network, paywall.id, parties)
  await openVersion(ctx, paywall.id, { price, active: true, depositId: deposit.id })
  await emitAttached(ctx, merchantId, paywall.id, null, paywall.split_id)
  await emitSold(ctx, { ...paywall, ...NO_PRODUCT }, body.subscriptionProductId)
  return paywall
}

/**
 * Changes the given fields. A new price or split, or switching the paywall on or off, also opens a new version. A new
 * split needs an `approval`.
 */
export async function changePaywall(
  ctx: Context,
  merchantId: string,
  id: string,
  body: PaywallChange,
  approval?: Approval,
): Promise<Row<"paywalls">> {
  return await orSlugTaken(
    inTransaction(ctx, async ctx => {
      await approval?.hold(ctx)
      // Ownership is checked first and without a lock, because splits are locked before the paywalls that use them.
      const known = await ownPaywall(ctx, merchantId, id).executeTakeFirst()
      if (!known) throw new ApiError("PAYWALL_NOT_FOUND")
      const asksForSplit = body.splitId !== undefined || body.price !== undefined
      const splitId = body.splitId === undefined ? known.split_id : body.splitId
      const split = asksForSplit ? await recipientSetOf(ctx, merchantId, splitId) : undefined
      const before = await lockPaywall(ctx, merchantId, id)
      const network = networkOf(ctx.chain, before.chain_id)
      const { token } = network
      const faults = contentFaults(body)
      faults.push(...(await subscriptionFaults(ctx, merchantId, network, body.subscriptionProductId)))
      const price =
        body.price === undefined && !body.splitId
          ? before.price
          : readAmount(
              "price",
              asWritten(body, "price") ?? formatAmount(before.price, token.decimals),
              token,
              ctx.settings.minAmount,
              split?.size,
            )
      if (typeof price !== "bigint") faults.push(price)
      if (typeof price !== "bigint" || faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
      const active = body.active ?? before.active
      const rerouted = body.splitId !== undefined && body.splitId !== before.split_id
      // The address commits to the payees, so a new split needs a new address.
      if (rerouted) await moveDeposit(ctx, network, id, { price, active, recipientSetId: split?.setId ?? null })
      else if (price !== before.price || active !== before.active) await openVersion(ctx, id, { price, active })
      if (body.splitId !== undefined) await emitAttached(ctx, merchantId, id, before.split_id, body.splitId)
      await emitSold(ctx, before, body.subscriptionProductId)
      return await ctx.db
        .updateTable("paywalls")
        .set({
          name: body.name ?? before.name,
          price,
          active,
          pricing_model: body.pricingModel ?? before.pricing_model,
          access_duration_s: durationAfter(
            { pricingModel: before.pricing_model, durationS: before.access_duration_s },
            body,
          ),
          updated_at: ctx.now(),
          ...(body.description === undefined ? {} : { description: body.description }),
          ...(body.contentUrl === undefined ? {} : { content_url: body.contentUrl }),
          ...(body.contentData === undefined
            ? {}
            : { content_data: body.contentData && JSON.stringify(body.contentData) }),
          ...(body.slug === undefined ? {} : { slug: body.slug }),
          ...(body.listed === undefined ? {} : { listed: body.listed }),
          ...(body.subscriptionProductId === undefined ? {} : { subscription_product_id: body.subscriptionProductId }),
          ...(body.splitId === undefined ? {} : { split_id: body.splitId }),
        })
        .where("id", "=", id)
        .returningAll()
        .executeTakeFirstOrThrow()
    }),
  )
}

/** The value for a new paywall, which sells no subscriptions yet. */
export const NO_PRODUCT = { subscription_product_id: null }

/**
 * The split of a paywall's subscription payments before and after a change of product. `after` is undefined if the
 * split does not change.
 */
export async function subscriptionSplits(
  ctx: TxContext,
  merchantId: string,
  paywall: Pick<Row<"paywalls">, "subscription_product_id">,
  productId: string | null | undefined,
): Promise<SplitChange> {
  const { subscription_product_id: present } = paywall
  const of = "its subscriptions"
  if (productId === undefined || productId === present) return { of, before: null, after: undefined }
  const splitOf = async (id: string | null) => (id === null ? null : (await ownProduct(ctx, merchantId, id))?.split_id)
  return { of, before: (await splitOf(present)) ?? null, after: await splitOf(productId) }
}

/** Emits an event if the paywall's subscription payments move to another split, or to none. */
async function emitSold(ctx: TxContext, before: Row<"paywalls">, productId: string | null | undefined): Promise<void> {
  const { id, merchant_id: merchantId, subscription_product_id: present } = before
  const sold = await subscriptionSplits(ctx, merchantId, before, productId)
  if (sold.after !== undefined) await emitAttached(ctx, merchantId, id, sold.before, sold.after, productId ?? present)
}

/** Locks the merchant's paywall until the transaction ends; throws `PAYWALL_NOT_FOUND` for another merchant's. */
async function lockPaywall(ctx: TxContext, merchantId: string, id: string): Promise<Row<"paywalls">> {
  const row = await ownPaywall(ctx, merchantId, id).forNoKeyUpdate().executeTakeFirst()
  if (!row) throw new ApiError("PAYWALL_NOT_FOUND")
  return row
}

const ownPaywall = (ctx: TxContext, merchantId: string, id: string) =>
  ctx.db.selectFrom("paywalls").selectAll().where("id", "=", id).where("merchant_id", "=", merchantId)

/** The merchant's paywall with its current receiving address; throws `PAYWALL_NOT_FOUND` for another merchant's. */
export async function readPaywall(ctx: TxContext, merchantId: string, id: string) {
  const paywall = await ownPaywall(ctx, merchantId, id).executeTakeFirst()
  if (!paywall) throw new ApiError("PAYWALL_NOT_FOUND")
  return {
    paywall,
    payTo: (await payToOf(ctx, id)).address,
    network: networkOf(ctx.chain, paywall.chain_id) as Network,
  }
}

/** A paywall's current receiving address, and its factory. */
export async function payToOf(ctx: TxContext, paywallId: string) {
  const row = await paidNow(ctx.db, paywallId)
  if (!row) throw new Error(`the paywall ${paywallId} has no receiving address`)
  return row
}

/**
 * Revokes a grant, so that the access loses exactly the grant's time. Throws `NOT_FOUND` if this paywall has no such
 * grant or it is already revoked.
 */
export async function revokeGrant(
  ctx: Context,
  paywallId: string,
  grantId: string,
  reason: string | undefined,
): Promise<void> {
  await inTransaction(ctx, async ctx => {
    const grant = await ctx.db
      .selectFrom("grants")
      .select("address")
      .where("id", "=", grantId)
      .where("paywall_id", "=", paywallId)
      .executeTakeFirst()
    if (!grant) throw new ApiError("NOT_FOUND")
    await lockAccess(ctx, paywallId, grant.address)
    const revoked = await ctx.db
      .updateTable("grants")
      .set({ revoked_at: ctx.now(), revoked_by: "merchant", revoke_reason: reason ?? null })
      .where("id", "=", grantId)
      .where("revoked_at", "is", null)
      .executeTakeFirst()
    if (revoked.numUpdatedRows === 0n) throw new ApiError("NOT_FOUND")
    await foldAccess(ctx, paywallId, grant.address)
  })
}
