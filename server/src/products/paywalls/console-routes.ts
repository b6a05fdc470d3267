/** `/api/console/paywalls`: a merchant's paywalls, and the access that they granted. */
import { sql } from "kysely"
import { Type } from "typebox"
import { approveSplits } from "../../ledger/splits/approve-splits.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, reading, type TxContext } from "../../platform/context.ts"
import { catalogConditions } from "../../platform/db/catalog-conditions.ts"
import type { Row } from "../../platform/db/schema.ts"
import { idempotentlyPrepared } from "../../platform/http/run-idempotently.ts"
import { catalogFilters, Page } from "../../platform/http/schemas.ts"
import { inData, newestFirst, sendList } from "../../platform/http/send-lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../../platform/http/server.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import {
  changePaywall,
  createPaywall,
  NO_PRODUCT,
  readPaywall,
  revokeGrant,
  subscriptionSplits,
} from "./manage-paywalls.ts"
import {
  Deleted,
  GrantId,
  GrantList,
  GrantRevoke,
  Id,
  PaywallChange,
  PaywallChanged,
  PaywallCreate,
  PaywallCreated,
  PaywallList,
  PaywallWhole,
} from "./schema.ts"

const tags = ["paywalls"]

/** The columns of a paywall in a list. */
const listed = [
  "id",
  "name",
  "price",
  "chain_id",
  "currency",
  "content_type",
  "pricing_model",
  "active",
  "created_at",
] as const

export function paywallConsoleRoutes(app: Server, ctx: Context): void {
  app.post(
    "/api/console/paywalls",
    {
      schema: {
        operationId: "createPaywall",
        summary: "Creates a paywall with its own receiving address",
        tags,
        body: PaywallCreate,
        response: { 201: PaywallCreated },
      },
      config: {
        errors: ["SLUG_TAKEN", "FORBIDDEN", "PAYMENTS_PAUSED"],
        walletLock: true,
        idempotencyKey: true,
      },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { name, splitId, subscriptionProductId } = request.body
      reply.code(201)
      return await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: () =>
          approveSplits(ctx, request, merchantId, `new paywall ${name}`, async ctx => [
            { before: null, after: splitId },
            await subscriptionSplits(ctx, merchantId, NO_PRODUCT, subscriptionProductId),
          ]),
        work: async (ctx, approval) => {
          await approval.hold(ctx)
          return createdOf(ctx, await createPaywall(ctx, merchantId, request.body))
        },
      })
    },
  )

  app.get(
    "/api/console/paywalls",
    {
      schema: {
        operationId: "listPaywalls",
        summary: "All paywalls, including inactive ones",
        tags,
        querystring: Type.Object({ ...Page.properties, ...catalogFilters }),
        response: { 200: PaywallList },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      // The list leaves out the content, which can be up to 64 KB for each paywall.
      const { active, q, ...page } = request.query
      const conditions = catalogConditions(merchantId, { active, q }, { name: "name", hasSlug: true })
      const query = read.db.selectFrom("paywalls").select(listed).where(conditions)
      return await sendList(
        read,
        reply,
        page,
        newestFirst(query),
        rows => rows.map(row => listedOf(read, row)),
        (paywalls, total) => ({ paywalls, total }),
      )
    },
  )

  app.get(
    "/api/console/paywalls/:id",
    {
      schema: {
        operationId: "readPaywall",
        summary: "One paywall with every field",
        tags,
        params: Id,
        response: { 200: PaywallWhole },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { paywall, payTo } = await readPaywall(ctx, merchantId, request.params.id)
      return {
        ...createdOf(ctx, paywall),
        contentData: paywall.content_data,
        payTo: checksummed(payTo),
        updatedAt: paywall.updated_at.toISOString(),
      }
    },
  )

  app.put(
    "/api/console/paywalls/:id",
    {
      schema: {
        operationId: "changePaywall",
        summary: "Changes the given fields",
        description: "Buyers who paid before the change, or within an hour after it, may have paid the old price.",
        tags,
        params: Id,
        body: PaywallChange,
        response: { 200: PaywallChanged },
      },
      config: { errors: ["PAYWALL_NOT_FOUND", "SLUG_TAKEN", "FORBIDDEN"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { params, body } = request
      const approval = await approveSplits(ctx, request, merchantId, params.id, async ctx => {
        const { paywall } = await readPaywall(ctx, merchantId, params.id)
        const own = { before: paywall.split_id, after: body.splitId }
        return [own, await subscriptionSplits(ctx, merchantId, paywall, body.subscriptionProductId)]
      })
      const row = await changePaywall(ctx, merchantId, params.id, body, approval)
      return { ...createdOf(ctx, row), updatedAt: row.updated_at.toISOString() }
    },
  )

  app.delete(
    "/api/console/paywalls/:id",
    {
      schema: {
        operationId: "deletePaywall",
        summary: "Deactivates a paywall; granted access stays",
        tags,
        params: Id,
        response: { 200: Deleted },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = await changePaywall(ctx, merchantId, request.params.id, { active: false })
      return { deleted: true as const, id }
    },
  )

  app.get(
    "/api/console/paywalls/:id/grants",
    {
      schema: {
        operationId: "listGrants",
        summary: "The access that a paywall has granted",
        tags,
        params: Id,
        querystring: Page,
        response: { 200: GrantList },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"] },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const merchantId = await callingMerchant(request)
      const { paywall, network } = await readPaywall(read, merchantId, request.params.id)
      const query = read.db
        .selectFrom("grants")
        // Every grant has a payment, so a left join returns the same rows. With a left join, the query for the total
        // skips the join.
        .leftJoin("payments", "payments.id", "grants.payment_id")
        .selectAll("grants")
        .select(sql<bigint>`payments.amount`.as("amount"))
        .where("grants.paywall_id", "=", paywall.id)
      const newest = newestFirst(query, { at: "granted_at", id: "grants.id" })
      const grantOf = (row: Row<"grants"> & { amount: bigint }) => ({
        id: row.id,
        paymentId: row.payment_id,
        address: checksummed(row.address),
        txHash: row.tx_hash,
        amount: formatAmount(row.amount, network.token.decimals),
        accessDuration: seconds(row.duration_s),
        calls: row.calls,
        callsUsed: row.calls_used,
        grantedAt: row.granted_at.toISOString(),
        revokedAt: row.revoked_at?.toISOString() ?? null,
        revokedBy: row.revoked_by,
        revokeReason: row.revoke_reason,
      })
      return await sendList(read, reply, request.query, newest, rows => rows.map(grantOf), inData)
    },
  )

  app.delete(
    "/api/console/paywalls/:id/grants/:grantId",
    {
      schema: {
        operationId: "revokeGrant",
        summary: "Revokes a grant, removing exactly the time that it added",
        tags,
        params: GrantId,
        body: GrantRevoke,
        response: { 200: Deleted },
      },
      config: { errors: ["PAYWALL_NOT_FOUND"] },
      preValidation: orEmptyBody,
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { paywall } = await readPaywall(ctx, merchantId, request.params.id)
      const { grantId } = request.params
      await revokeGrant(ctx, paywall.id, grantId, request.body.reason)
      return { deleted: true as const, id: grantId }
    },
  )
}

function listedOf(ctx: TxContext, row: Pick<Row<"paywalls">, (typeof listed)[number]>) {
  return {
    id: row.id,
    name: row.name,
    price: formatAmount(row.price, networkOf(ctx.chain, row.chain_id).token.decimals),
    currency: row.currency,
    contentType: row.content_type,
    pricingModel: row.pricing_model,
    active: row.active,
    createdAt: row.created_at.toISOString(),
  }
}

function createdOf(ctx: TxContext, row: Row<"paywalls">) {
  return {
    ...listedOf(ctx, row),
    merchantId: row.merchant_id,
    description: row.description,
    contentUrl: row.content_url,
    slug: row.slug,
    listed: row.listed,
    splitId: row.split_id,
    subscriptionProductId: row.subscription_product_id,
    chain: networkOf(ctx.chain, row.chain_id).name,
    accessDuration: seconds(row.access_duration_s),
  }
}

const seconds = (durationS: bigint | null): number | null => (durationS === null ? null : Number(durationS))
