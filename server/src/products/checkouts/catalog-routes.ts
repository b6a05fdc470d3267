/** The routes of `/api/console/products` and `/api/console/payment-links`. */
import { approveAttachment, noSplit } from "../../ledger/splits/approve-splits.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { catalogConditions } from "../../platform/db/catalog-conditions.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotentlyPrepared } from "../../platform/http/run-idempotently.ts"
import { catalogFilters } from "../../platform/http/schemas.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import {
  Link,
  LinkChange,
  LinkCreate,
  LinkId,
  LinkList,
  Product,
  ProductChange,
  ProductCreate,
  ProductId,
  ProductList,
} from "./catalog-schema.ts"
import {
  changeLink,
  changeProduct,
  createLink,
  createProduct,
  ownLinkById,
  ownProduct,
  switchOff,
} from "./manage-catalog.ts"
import { Deleted } from "./schema.ts"

export function catalogRoutes(app: Server, ctx: Context): void {
  const products = "/api/console/products"
  const product = { tags: ["products"] }
  app.post(
    products,
    {
      schema: {
        ...product,
        operationId: "createProduct",
        summary: "Creates a product with a price",
        body: ProductCreate,
        response: { 201: Product },
      },
      config: { errors: ["FORBIDDEN"], idempotencyKey: true, walletLock: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { name, splitId } = request.body
      reply.code(201)
      return await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: () => approveAttachment(ctx, request, merchantId, `new product ${name}`, noSplit, splitId),
        work: async (ctx, approval) => {
          await approval.hold(ctx)
          return productOf(ctx, await createProduct(ctx, merchantId, request.body))
        },
      })
    },
  )
  listRoute(app, ctx, {
    ...product,
    path: products,
    operationId: "listProducts",
    summary: "All products, including inactive ones",
    answer: ProductList,
    filter: catalogFilters,
    source: ({ db }, merchantId, filter) =>
      newestFirst(
        db
          .selectFrom("products")
          .selectAll()
          .where(catalogConditions(merchantId, filter, { name: "name", hasSlug: false })),
      ),
    show: (read, rows) => rows.map(row => productOf(read, row)),
  })
  app.get(
    `${products}/:id`,
    {
      schema: {
        ...product,
        operationId: "readProduct",
        summary: "One product",
        params: ProductId,
        response: { 200: Product },
      },
    },
    async request => {
      const row = await ownProduct(ctx, await callingMerchant(request), request.params.id)
      if (!row) throw new ApiError("NOT_FOUND")
      return productOf(ctx, row)
    },
  )
  app.put(
    `${products}/:id`,
    {
      schema: {
        ...product,
        operationId: "changeProduct",
        summary: "Changes the given fields; checkouts already started keep their price",
        params: ProductId,
        body: ProductChange,
        response: { 200: Product },
      },
      config: { errors: ["FORBIDDEN"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { params, body } = request
      const before = async (ctx: TxContext) => {
        const row = await ownProduct(ctx, merchantId, params.id)
        if (!row) throw new ApiError("NOT_FOUND")
        return row.split_id
      }
      const approval = await approveAttachment(ctx, request, merchantId, params.id, before, body.splitId)
      const row = await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        return await changeProduct(ctx, merchantId, params.id, body)
      })
      return productOf(ctx, row)
    },
  )
  app.delete(
    `${products}/:id`,
    {
      schema: {
        ...product,
        operationId: "deleteProduct",
        summary: "Deactivates a product; has no effect on an inactive product",
        description:
          "No new checkout of the product can be created. Payment links keep the price from their creation and continue to sell, so switch them off too. The links of a product with `billingInterval` end with the product.",
        params: ProductId,
        response: { 200: Deleted },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      await switchOff(ctx, "products", merchantId, id)
      return { deleted: true as const, id }
    },
  )

  const links = "/api/console/payment-links"
  const link = { tags: ["payment links"] }
  app.post(
    links,
    {
      schema: {
        ...link,
        operationId: "createPaymentLink",
        summary: "Creates a payment link",
        body: LinkCreate,
        response: { 201: Link },
      },
      config: { errors: ["FORBIDDEN", "SLUG_TAKEN"], idempotencyKey: true, walletLock: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { title, splitId } = request.body
      reply.code(201)
      return await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: () => approveAttachment(ctx, request, merchantId, `new payment link ${title}`, noSplit, splitId),
        work: async (ctx, approval) => {
          await approval.hold(ctx)
          return linkOf(ctx, await createLink(ctx, merchantId, request.body))
        },
      })
    },
  )
  listRoute(app, ctx, {
    ...link,
    path: links,
    operationId: "listPaymentLinks",
    summary: "All payment links, including inactive ones",
    answer: LinkList,
    filter: catalogFilters,
    source: ({ db }, merchantId, filter) =>
      newestFirst(
        db
          .selectFrom("payment_links")
          .selectAll()
          .where(catalogConditions(merchantId, filter, { name: "title", hasSlug: true })),
      ),
    show: (read, rows) => rows.map(row => linkOf(read, row)),
  })
  app.get(
    `${links}/:id`,
    {
      schema: {
        ...link,
        operationId: "readPaymentLink",
        summary: "One payment link",
        params: LinkId,
        response: { 200: Link },
      },
    },
    async request => {
      const row = await ctx.db
        .selectFrom("payment_links")
        .selectAll()
        .where("id", "=", request.params.id)
        .where("merchant_id", "=", await callingMerchant(request))
        .executeTakeFirst()
      if (!row) throw new ApiError("NOT_FOUND")
      return linkOf(ctx, row)
    },
  )
  app.put(
    `${links}/:id`,
    {
      schema: {
        ...link,
        operationId: "changePaymentLink",
        summary: "Changes the given fields; checkouts already started stay unchanged",
        params: LinkId,
        body: LinkChange,
        response: { 200: Link },
      },
      config: { errors: ["FORBIDDEN"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { params, body } = request
      const before = async (ctx: TxContext) => {
        const row = await ownLinkById(ctx, merchantId, params.id)
        if (!row) throw new ApiError("NOT_FOUND")
        return row.split_id
      }
      const approval = await approveAttachment(ctx, request, merchantId, params.id, before, body.splitId)
      const row = await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        return await changeLink(ctx, merchantId, params.id, body)
      })
      return linkOf(ctx, row)
    },
  )
  app.delete(
    `${links}/:id`,
    {
      schema: {
        ...link,
        operationId: "deletePaymentLink",
        summary: "Deactivates a payment link; checkouts already started can still be paid",
        params: LinkId,
        response: { 200: Deleted },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      await switchOff(ctx, "payment_links", merchantId, id)
      return { deleted: true as const, id }
    },
  )
}

function productOf(ctx: TxContext, row: Row<"products">) {
  const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
  return {
    id: row.id,
    name: row.name,
    description: row.description,
    price: formatAmount(row.price, token.decimals),
    currency: row.currency,
    chain,
    splitId: row.split_id,
    active: row.active,
    billingInterval: row.billing_interval,
    billingCount: row.billing_count,
    trialDays: row.trial_days,
    maxPeriods: row.max_periods,
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
  }
}

function linkOf(ctx: TxContext, row: Row<"payment_links">) {
  const { name: chain, token } = networkOf(ctx.chain, row.chain_id)
  return {
    id: row.id,
    slug: row.slug,
    url: `${ctx.settings.baseUrl}/p/${row.slug}`,
    title: row.title,
    description: row.description,
    amount: row.amount === null ? null : formatAmount(row.amount, token.decimals),
    currency: row.currency,
    chain,
    productId: row.product_id,
    splitId: row.split_id,
    redirectUrl: row.redirect_url,
    maxUses: row.max_uses,
    uses: row.uses,
    expiresAt: row.expires_at?.toISOString() ?? null,
    payerFields: row.payer_fields ?? [],
    active: row.active,
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
  }
}
