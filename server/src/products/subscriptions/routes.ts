/** The routes of `/api/console/subscriptions` and `/api/console/invoices`. */
import { approveSplits } from "../../ledger/splits/approve-splits.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotently } from "../../platform/http/run-idempotently.ts"
import { csv } from "../../platform/http/send-csv.ts"
import { newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import {
  cancelSubscription,
  moveSubscription,
  pauseSubscription,
  resumeSubscription,
  splitsOfMove,
} from "./ask-subscription.ts"
import {
  type InvoiceFilter,
  type InvoiceRow,
  invoicesOf,
  type SubscriptionFilter,
  sessionsOfSubscription,
  subscriptionsOf,
} from "./queries.ts"
import {
  Invoice,
  InvoiceFilters,
  InvoiceId,
  InvoiceList,
  Subscription,
  SubscriptionCancel,
  SubscriptionChange,
  SubscriptionFilters,
  SubscriptionId,
  SubscriptionList,
  SubscriptionWhole,
} from "./schema.ts"
import { shownInvoice, shownSubscription } from "./show-subscription.ts"

const path = "/api/console/subscriptions"
const tags = ["subscriptions"]
const byStart = { at: "started_at", id: "id" }
const byInvoice = { at: "invoices.created_at", id: "invoices.id" }
const INVOICES_SHOWN = 100

export function subscriptionRoutes(app: Server, ctx: Context): void {
  listRoutes(app, ctx)
  askRoutes(app, ctx)
  invoiceRoutes(app, ctx)
}

function listRoutes(app: Server, ctx: Context): void {
  listRoute(app, ctx, {
    path,
    operationId: "listSubscriptions",
    summary: "All subscriptions that have started, newest first",
    tags,
    filter: SubscriptionFilters.properties,
    answer: SubscriptionList,
    source: (read, merchantId, filter) => newestFirst(subscriptionsOf(read, merchantId, filter), byStart),
    show: (read, rows) => rows.map(row => shownSubscription(read, row)),
    csv: {
      operationId: "exportSubscriptions",
      summary: "All subscriptions that match the filter, as CSV",
      lines: subscriptionsCsv,
    },
  })
  app.get(
    `${path}/:id`,
    {
      schema: {
        operationId: "readSubscription",
        summary: "One subscription with its invoices",
        tags,
        params: SubscriptionId,
        response: { 200: SubscriptionWhole },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const row = await subscriptionsOf(ctx, merchantId, {}).where("id", "=", id).executeTakeFirst()
      if (!row) throw new ApiError("NOT_FOUND")
      const invoices = invoicesOf(ctx, merchantId, { subscriptionId: id }).orderBy("sequence", "desc")
      const shown = await invoices.limit(INVOICES_SHOWN).execute()
      return { ...shownSubscription(ctx, row), invoices: shown.map(each => shownInvoice(ctx, each)) }
    },
  )
}

/** Makes a change once per Idempotency-Key, and wakes whoever waits for the subscription's payments. */
async function asked(
  ctx: Context,
  request: Parameters<typeof idempotently>[1],
  reply: Parameters<typeof idempotently>[2],
  merchantId: string,
  work: (ctx: TxContext) => Promise<Row<"subscriptions">>,
) {
  const answer = await idempotently(ctx, request, reply, merchantId, async ctx =>
    shownSubscription(ctx, await work(ctx)),
  )
  await ctx.wakes.wake("payments", await sessionsOfSubscription(ctx, answer.id))
  return answer
}

function askRoutes(app: Server, ctx: Context): void {
  app.post(
    `${path}/:id/pause`,
    {
      schema: {
        operationId: "pauseSubscription",
        summary: "Pauses a subscription",
        description:
          "Its open invoice is closed, and no invoice is created until it is resumed. The subscriber keeps paid access.",
        tags,
        params: SubscriptionId,
        response: { 200: Subscription },
      },
      config: { errors: ["INVALID_OPERATION"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      return await asked(ctx, request, reply, merchantId, ctx =>
        pauseSubscription(ctx, { merchantId }, request.params.id),
      )
    },
  )
  app.post(
    `${path}/:id/resume`,
    {
      schema: {
        operationId: "resumeSubscription",
        summary: "Resumes a paused subscription, or keeps a subscription that would end with its period",
        description: "If the paid period has ended, periods count from now: time without access is not billed.",
        tags,
        params: SubscriptionId,
        response: { 200: Subscription },
      },
      config: { errors: ["INVALID_OPERATION"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      return await asked(ctx, request, reply, merchantId, ctx =>
        resumeSubscription(ctx, { merchantId }, request.params.id),
      )
    },
  )
  app.post(
    `${path}/:id/cancel`,
    {
      schema: {
        operationId: "cancelSubscription",
        summary: "Cancels a subscription, immediately or at the end of its period",
        description: "`period_end` can be undone until then with `resume`. A canceled subscription can't be resumed.",
        tags,
        params: SubscriptionId,
        body: SubscriptionCancel,
        response: { 200: Subscription },
      },
      config: { errors: ["INVALID_OPERATION"], idempotencyKey: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { params, body } = request
      return await asked(ctx, request, reply, merchantId, ctx =>
        cancelSubscription(ctx, { merchantId }, params.id, body.at),
      )
    },
  )
  app.put(
    `${path}/:id`,
    {
      schema: {
        operationId: "changeSubscription",
        summary: "Moves a subscription to another product, starting with its next invoice",
        tags,
        params: SubscriptionId,
        body: SubscriptionChange,
        response: { 200: Subscription },
      },
      config: { errors: ["INVALID_OPERATION"], walletLock: true },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const { productId } = request.body
      const approval = await approveSplits(ctx, request, merchantId, id, async ctx => [
        await splitsOfMove(ctx, merchantId, id, productId),
      ])
      const row = await inTransaction(ctx, async ctx => {
        await approval.hold(ctx)
        return await moveSubscription(ctx, merchantId, id, productId)
      })
      return shownSubscription(ctx, row)
    },
  )
}

function invoiceRoutes(app: Server, ctx: Context): void {
  const invoices = "/api/console/invoices"
  listRoute(app, ctx, {
    path: invoices,
    operationId: "listInvoices",
    summary: "All invoices, newest first",
    tags,
    filter: InvoiceFilters.properties,
    answer: InvoiceList,
    source: (read, merchantId, filter) => newestFirst(invoicesOf(read, merchantId, filter), byInvoice),
    show: (read, rows) => rows.map(row => shownInvoice(read, row)),
    csv: {
      operationId: "exportInvoices",
      summary: "All invoices that match the filter, as CSV",
      lines: invoicesCsv,
    },
  })
  app.get(
    `${invoices}/:id`,
    {
      schema: {
        operationId: "readInvoice",
        summary: "One invoice",
        tags,
        params: InvoiceId,
        response: { 200: Invoice },
      },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const row = await invoicesOf(ctx, merchantId, { id: request.params.id }).executeTakeFirst()
      if (!row) throw new ApiError("NOT_FOUND")
      return shownInvoice(ctx, row)
    },
  )
}

/** All matching subscriptions as CSV. The e-mail address is left out, so that the CSV contains no text from outside. */
const subscriptionsCsv = (ctx: TxContext, merchantId: string, filter: SubscriptionFilter): AsyncGenerator<string> => {
  const source = newestFirst(subscriptionsOf(ctx, merchantId, filter), byStart)
  return csv(
    [
      "id",
      "status",
      "cancelReason",
      "productId",
      "billingInterval",
      "billingCount",
      "maxPeriods",
      "chain",
      "payer",
      "startedAt",
      "paidUntil",
      "accessUntil",
      "pausedAt",
      "endedAt",
    ],
    (rows: Row<"subscriptions">[]) => rows.map(row => shownSubscription(ctx, row)),
    (last, limit) => source.read(last, limit, 0),
  )
}

const invoicesCsv = (ctx: TxContext, merchantId: string, filter: InvoiceFilter): AsyncGenerator<string> => {
  const source = newestFirst(invoicesOf(ctx, merchantId, filter), byInvoice)
  return csv(
    [
      "id",
      "subscriptionId",
      "sequence",
      "status",
      "amount",
      "currency",
      "chain",
      "productId",
      "checkoutSessionId",
      "periodStart",
      "periodEnd",
      "dueAt",
      "paidAt",
      "createdAt",
    ],
    (rows: InvoiceRow[]) => rows.map(row => shownInvoice(ctx, row)),
    (last, limit) => source.read(last, limit, 0),
  )
}
