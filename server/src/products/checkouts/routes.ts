/** `/api/checkouts` for a merchant's server, and the same sessions under `/api/console/checkouts`. */

import type { FastifyRequest } from "fastify"
import { Type } from "typebox"
import { withMetadata } from "../../ledger/books/checkout-filter.ts"
import { withPutAway } from "../../ledger/deposits/put-away.ts"
import { sharesOf } from "../../ledger/payouts/queries.ts"
import { receiptUrl } from "../../ledger/receipts/receipt-url.ts"
import { withActor } from "../../platform/actor.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, reading, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError } from "../../platform/errors.ts"
import { callingMerchantByKey } from "../../platform/http/authenticate.ts"
import { idempotentlyPrepared, type KeptAnswer } from "../../platform/http/run-idempotently.ts"
import { CsvAnswer, csvQuery, sendCsv } from "../../platform/http/send-csv.ts"
import { inData, sendList } from "../../platform/http/send-lists.ts"
import { callingMerchant, type Server } from "../../platform/http/server.ts"
import { refundsOfSession } from "../escrow/refund-queries.ts"
import { shownCalls, shownEscrow } from "../escrow/show-escrow.ts"
import { closeSession, createSession, isWrittenAtOnce, type MadeSession, readOffer } from "./create-session.ts"
import { metadataFaults, redirectFaults } from "./input-faults.ts"
import { checkoutsCsv, checkoutsOf } from "./list-checkouts.ts"
import type { Offer } from "./load-offer.ts"
import { returnedAt, returnedKey } from "./queries.ts"
import { readOwn } from "./read-status.ts"
import { CheckoutCreate, Deleted, Session, SessionChange, SessionId, SessionList, SessionQuery } from "./schema.ts"
import { type PaidAt, paidAtOf, paidAtOfState, sessionUrl, shownOf } from "./show-session.ts"

const tags = ["checkouts"]

/**
 * The paths for creating, listing and reading sessions, with their credential and the suffix of their operation ids.
 * `isHeld`: creation runs in a transaction that holds the credential. A server's key is read just before the creation
 * instead, because a transaction would slow every checkout down.
 */
const surfaces = [
  {
    prefix: "/api/checkouts",
    by: "",
    isHeld: false,
    merchantOf: async (request: FastifyRequest) => callingMerchantByKey(request),
  },
  { prefix: "/api/console/checkouts", by: "InConsole", isHeld: true, merchantOf: callingMerchant },
] as const
type Surface = (typeof surfaces)[number]

export function checkoutRoutes(app: Server, ctx: Context): void {
  for (const surface of surfaces) surfaceRoutes(app, ctx, surface)
  csvRoute(app, ctx)
  changeRoutes(app, ctx)
}

function surfaceRoutes(app: Server, ctx: Context, { prefix, by, isHeld, merchantOf }: Surface): void {
  app.post(
    prefix,
    {
      schema: {
        operationId: `createCheckout${by}`,
        summary: "Starts a checkout with its own receiving address",
        tags,
        body: CheckoutCreate,
        response: { 201: Session },
      },
      config: {
        errors: ["FORBIDDEN", "PAYOUT_ADDRESS_REQUIRED", "LINK_UNAVAILABLE", "PAYMENTS_PAUSED"],
        idempotencyKey: true,
      },
    },
    async (request, reply) => {
      const merchantId = await merchantOf(request)
      reply.code(201)
      const { body } = request
      const answerOf = ({ session, payTo, escrow, slug }: MadeSession) =>
        wholeOf(ctx, session, { paidAt: { address: payTo, escrow, paused: false }, returned: 0n, slug })
      const work = async (ctx: TxContext, offer: Offer, keptOf?: (body: ReturnType<typeof answerOf>) => KeptAnswer) =>
        answerOf(await createSession(ctx, merchantId, body, offer, keptOf && (made => keptOf(answerOf(made)))))
      const create = () =>
        idempotentlyPrepared(ctx, request, reply, merchantId, {
          prepare: () => readOffer(ctx, merchantId, body),
          work,
          isOneStatement: offer => !isHeld && isWrittenAtOnce(offer, body),
        })
      // A checkout is its own record. The audit log has no entry for it, so the transaction need not name the actor.
      return await (isHeld ? create() : withActor(undefined, create))
    },
  )

  app.get(
    prefix,
    {
      schema: {
        operationId: `listCheckouts${by}`,
        summary: "All checkouts, newest first",
        description:
          "Leaves out unpaid checkouts that ended more than 30 days ago. You can still read them by id; a checkout that is read is listed again for a day.",
        tags,
        querystring: SessionQuery,
        response: { 200: SessionList },
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const { limit, offset, after, ...filter } = request.query
      const source = checkoutsOf(read, await merchantOf(request), withMetadata(ctx.chain, filter))
      return await sendList(read, reply, { limit, offset, after }, source, rows => wholesOf(read, rows), inData)
    },
  )

  app.get(
    `${prefix}/:id`,
    {
      schema: {
        operationId: `readCheckout${by}`,
        summary: "One checkout with every field",
        tags,
        params: SessionId,
        response: { 200: Session },
      },
      config: { errors: ["SESSION_NOT_FOUND"] },
    },
    async request => {
      const { id } = request.params
      const merchantId = await merchantOf(request)
      const state = await readOwn(ctx, id, merchantId)
      const { session: row, returned, slug } = state
      const whole = wholeOf(ctx, row, { paidAt: await paidAtOfState(ctx, state), returned, slug })
      if (row.capture !== "direct")
        return { ...whole, openCalls: await openCallsOf(ctx, row), refunds: await refundsOfSession(ctx, row) }
      if (row.recipient_set_id === null) return whole
      const payment = await ctx.db
        .selectFrom("payments")
        .select("id")
        .where("resource_id", "=", row.id)
        .where("status", "in", ["granted", "reversed"])
        .where("beside", "=", false)
        .orderBy("status")
        .executeTakeFirst()
      return { ...whole, splits: payment ? await sharesOf(ctx, payment.id) : [] }
    },
  )
}

function csvRoute(app: Server, ctx: Context): void {
  const { limit, offset, after, ...filter } = SessionQuery.properties
  app.get(
    "/api/console/checkouts.csv",
    {
      schema: {
        operationId: "exportCheckouts",
        summary: "All checkouts that match the filter, as CSV",
        tags,
        querystring: Type.Object({ ...filter, ...csvQuery }),
        response: CsvAnswer,
      },
    },
    async (request, reply) => {
      const read = await reading(ctx)
      const { bom, ...filter } = request.query
      const wanted = withMetadata(ctx.chain, filter)
      const lines = checkoutsCsv(read, await callingMerchant(request), wanted, rows => wholesOf(read, rows))
      return await sendCsv(read, reply, "checkouts.csv", lines, bom ? { bom } : {})
    },
  )
}

function changeRoutes(app: Server, ctx: Context): void {
  app.put(
    "/api/console/checkouts/:id",
    {
      schema: {
        operationId: "changeCheckout",
        summary: "Changes the given fields; the payer's price stays the same",
        tags,
        params: SessionId,
        body: SessionChange,
        response: { 200: Session },
      },
      config: { errors: ["SESSION_NOT_FOUND"] },
    },
    async request => {
      const merchantId = await callingMerchant(request)
      const { description, redirectUrl, metadata } = request.body
      const faults = [...metadataFaults(metadata), ...redirectFaults(redirectUrl)]
      if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
      const change = {
        ...(description === undefined ? {} : { description }),
        ...(redirectUrl === undefined ? {} : { redirect_url: redirectUrl }),
        ...(metadata === undefined ? {} : { metadata: metadata && JSON.stringify(metadata) }),
        updated_at: ctx.now(),
      }
      const { id } = request.params
      const write = () =>
        inTransaction(ctx, ({ db }) =>
          db
            .updateTable("checkout_sessions")
            .set(change)
            .where("id", "=", id)
            .where("merchant_id", "=", merchantId)
            .returningAll()
            .executeTakeFirstOrThrow(() => new ApiError("SESSION_NOT_FOUND")),
        )
      const [whole] = await wholesOf(ctx, [await withPutAway(ctx, { ids: [id] }, write)])
      if (!whole) throw new Error("a session has no receiving address")
      return whole
    },
  )

  app.delete(
    "/api/console/checkouts/:id",
    {
      schema: {
        operationId: "closeCheckout",
        summary: "Ends a checkout that has no payment in progress",
        description: "The checkout expires immediately. Money that arrives later is still found, and counts as late.",
        tags,
        params: SessionId,
        response: { 200: Deleted },
      },
      config: { errors: ["SESSION_NOT_FOUND", "INVALID_OPERATION"] },
    },
    async request => {
      const { id } = request.params
      await closeSession(ctx, await callingMerchant(request), id)
      // Wakes the open pages, so that their payers stop paying.
      await ctx.wakes.wake("payments", [id])
      return { deleted: true as const, id }
    },
  )
}

/** Formats sessions for their merchant. */
async function wholesOf(ctx: TxContext, rows: readonly Row<"checkout_sessions">[]) {
  const paidAts = await paidAtOf(ctx, rows)
  const keyOf = ({ id, chain_id }: Row<"checkout_sessions">) =>
    returnedKey(id, networkOf(ctx.chain, chain_id).token.address)
  const returned = await returnedAt(ctx.db, rows.map(keyOf))
  const linkIds = [...new Set(rows.flatMap(row => row.link_id ?? []))]
  const links =
    linkIds.length === 0
      ? []
      : await ctx.db.selectFrom("payment_links").select(["id", "slug"]).where("id", "in", linkIds).execute()
  return rows.flatMap(row => {
    const paidAt = paidAts.get(row.id)
    const slug = links.find(link => link.id === row.link_id)?.slug ?? null
    return paidAt ? [wholeOf(ctx, row, { paidAt, returned: returned.get(keyOf(row)), slug })] : []
  })
}

interface Around {
  paidAt: PaidAt
  returned: bigint | undefined
  /** The slug of the session's payment link. */
  slug: string | null
}

/** Formats a session for its merchant, together with the related data. */
function wholeOf(ctx: TxContext, row: Row<"checkout_sessions">, { paidAt, returned, slug }: Around) {
  const { escrow } = paidAt
  return {
    id: row.id,
    merchantId: row.merchant_id,
    url: sessionUrl(ctx, row.id),
    ...shownOf(ctx, row, paidAt, returned),
    callbackUrl: row.callback_url,
    slug,
    productId: row.product_id,
    splitId: row.split_id,
    capture: row.capture,
    authId: escrow?.auth_id ?? null,
    escrow: escrow ? shownEscrow(networkOf(ctx.chain, row.chain_id), escrow) : null,
    customerEmail: row.customer_email,
    payerFields: row.payer_fields ?? [],
    payerInfo: row.payer_info,
    metadata: row.metadata,
    payer: row.payer && checksummed(row.payer),
    receiptUrl: row.confirmed_at && receiptUrl(ctx, row.id),
    confirmedAt: row.confirmed_at?.toISOString() ?? null,
    createdAt: row.created_at.toISOString(),
    updatedAt: row.updated_at.toISOString(),
  }
}

const openCallsOf = async (ctx: Context, { id, chain_id: chainId }: Row<"checkout_sessions">) =>
  shownCalls(
    networkOf(ctx.chain, chainId),
    await ctx.db
      .selectFrom("payouts")
      .select(["id", "kind", "amount", "state", "held_reason", "held_detail"])
      .where("escrow_id", "=", id)
      .where("kind", "in", ["capture", "void"])
      .where("state", "in", ["queued", "held", "assigned"])
      .orderBy("created_at")
      .orderBy("id")
      .execute(),
  )
