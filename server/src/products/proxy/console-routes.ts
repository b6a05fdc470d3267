/** `/api/console/bundles`: a merchant's APIs that callers pay for. */
import { bundleDeposit } from "../../ledger/deposits/make-bundle-deposit.ts"
import { approveAttachment, noSplit } from "../../ledger/splits/approve-splits.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { catalogConditions } from "../../platform/db/catalog-conditions.ts"
import type { Row } from "../../platform/db/schema.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotentlyPrepared } from "../../platform/http/run-idempotently.ts"
import { catalogFilters } from "../../platform/http/schemas.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { shownRoute, urlOf } from "./describe-bundle.ts"
import { changeBundle, createBundle, headerNames, readBundle, routesOf, switchOffBundle } from "./manage-bundles.ts"
import { BundleChange, BundleCreate, BundleId, BundleList, BundleWhole, Deleted, FailureList } from "./schema.ts"

/** The columns of a bundle in a list, without the OpenAPI document, which can be up to 128 KB. */
const listed = [
  "id",
  "slug",
  "name",
  "description",
  "origin_url",
  "currency",
  "chain_id",
  "active",
  "listed",
  "created_at",
  "updated_at",
] as const

export function bundleConsoleRoutes(app: Server, ctx: Context): void {
  const bundles = "/api/console/bundles"
  const bundle = { tags: ["bundles"] }
  app.post(
    bundles,
    {
      schema: {
        ...bundle,
        operationId: "createBundle",
        summary: "Puts an API behind a price, route by route",
        body: BundleCreate,
        response: { 201: BundleWhole },
      },
      config: { errors: ["SLUG_TAKEN", "FORBIDDEN", "PAYMENTS_PAUSED"], idempotencyKey: true, walletLock: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { name, splitId } = request.body
      reply.code(201)
      return await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: () => approveAttachment(ctx, request, merchantId, `new bundle ${name}`, noSplit, splitId),
        work: async (ctx, approval) => {
          await approval.hold(ctx)
          return await wholeOf(ctx, await createBundle(ctx, merchantId, request.body))
        },
      })
    },
  )
  listRoute(app, ctx, {
    ...bundle,
    path: bundles,
    operationId: "listBundles",
    summary: "All bundles, including inactive ones",
    answer: BundleList,
    filter: catalogFilters,
    source: ({ db }, merchantId, filter) =>
      newestFirst(
        db
          .selectFrom("bundles")
          .select(listed)
          .where(catalogConditions(merchantId, filter, { name: "name", hasSlug: true })),
      ),
    show: (read, rows) => rows.map(row => listedOf(read, row)),
  })
  app.get(
    `${bundles}/:id`,
    {
      schema: {
        ...bundle,
        operationId: "readBundle",
        summary: "One bundle with its routes, and only the names of its secret headers",
        params: BundleId,
        response: { 200: BundleWhole },
      },
    },
    async request => wholeOf(ctx, await readBundle(ctx, await callingMerchant(request), request.params.id)),
  )
  app.put(
    `${bundles}/:id`,
    {
      schema: {
        ...bundle,
        operationId: "changeBundle",
        summary: "Changes the given fields; calls in progress keep the old ones",
        params: BundleId,
        body: BundleChange,
        response: { 200: BundleWhole },
      },
      config: { errors: ["SLUG_TAKEN", "FORBIDDEN"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { params, body } = request
      const before = async (ctx: TxContext) => (await readBundle(ctx, merchantId, params.id)).split_id
      const approval = await approveAttachment(ctx, request, merchantId, params.id, before, body.splitId)
      const row = await changeBundle(ctx, merchantId, params.id, body, approval)
      return await wholeOf(ctx, row)
    },
  )
  app.delete(
    `${bundles}/:id`,
    {
      schema: {
        ...bundle,
        operationId: "deleteBundle",
        summary: "Deactivates a bundle; has no effect on an inactive bundle",
        params: BundleId,
        response: { 200: Deleted },
      },
    },
    async request => {
      const { id } = request.params
      await switchOffBundle(ctx, await callingMerchant(request), id)
      return { deleted: true as const, id }
    },
  )
  listRoute(app, ctx, {
    ...bundle,
    path: `${bundles}/:id/failures`,
    operationId: "listBundleFailures",
    summary: "Paid calls that the origin failed, latest first",
    params: BundleId,
    answer: FailureList,
    source: async (read, merchantId, _, params) => {
      const { id } = await readBundle(read, merchantId, params.id)
      const query = read.db.selectFrom("bundle_failures").selectAll().where("bundle_id", "=", id)
      return newestFirst(query, { at: "failed_at", id: "payment_id" })
    },
    show: (_, rows) => rows.map(failureOf),
  })
}

type ListedRow = Pick<Row<"bundles">, (typeof listed)[number]>

function listedOf(ctx: TxContext, row: ListedRow) {
  return {
    id: row.id,
    slug: row.slug,
    url: urlOf(ctx, row.slug),
    name: row.name,
    description: row.description,
    originUrl: row.origin_url,
    currency: row.currency,
    chain: networkOf(ctx.chain, row.chain_id).name,
    active: row.active,
    listed: row.listed,
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
  }
}

async function wholeOf(ctx: TxContext, row: Row<"bundles">) {
  const { token } = networkOf(ctx.chain, row.chain_id)
  return {
    ...listedOf(ctx, row),
    merchantId: row.merchant_id,
    splitId: row.split_id,
    originHeaders: await headerNames(ctx, row.id),
    openapi: row.openapi,
    openapiUrl: row.openapi_url,
    payTo: checksummed((await bundleDeposit(ctx, row.id)).address),
    routes: (await routesOf(ctx, row.id)).map(route => shownRoute(token, route)),
  }
}

const failureOf = (row: Row<"bundle_failures">) => ({
  paymentId: row.payment_id,
  method: row.method,
  path: row.path,
  reason: row.reason,
  attempts: row.attempts,
  failedAt: row.failed_at.toISOString(),
  servedAt: row.served_at?.toISOString() ?? null,
})
