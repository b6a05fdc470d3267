/** `/api/console/payments`: money that waits for the merchant, to be accepted or returned. */
import type { FastifyRequest } from "fastify"
import type { Hex } from "viem"
import { approvedByWallet } from "../../account/identity/check-wallet-lock.ts"
import { countSpend, lockCaps } from "../../account/identity/count-key-spends.ts"
import { NoBody } from "../../account/identity/schema.ts"
import { addressField } from "../../platform/chain/address-field.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { listRoute } from "../../platform/http/list-route.ts"
import { idempotentlyInPart, idempotentlyPrepared } from "../../platform/http/run-idempotently.ts"
import { byCreation, newestFirst } from "../../platform/http/send-lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../../platform/http/server.ts"
import { transactions, usualName } from "../books/read-transactions.ts"
import { assertMoneyThere } from "./check-money-there.ts"
import { checkApproval, isForWallet } from "./check-return-approval.ts"
import { returnable } from "./hold-surplus.ts"
import { exceptionsOf } from "./list-exceptions.ts"
import { namedAddress } from "./name-return-address.ts"
import { acceptPayment, paymentOf, returnPayment, screenDecision } from "./resolve-exception.ts"
import {
  ExceptionalPayment,
  ExceptionalPaymentList,
  PaymentFilters,
  PaymentId,
  ReturnOrder,
  ReturnOrders,
  ReturnOutcomes,
} from "./schema.ts"
import type { SellingContext, SellingTx } from "./sellable.ts"
import { namesOf, sellableOf } from "./sellable.ts"

const tags = ["transactions"]

export function exceptionRoutes(app: Server, ctx: SellingContext): void {
  listRoute(app, ctx, {
    path: "/api/console/payments",
    operationId: "listExceptionalPayments",
    summary: "Payments that need a decision or got one, newest first",
    description:
      "Payments that were too small, too large, late, duplicate, in another token or from a sender on a sanctions list. An `open` payment waits for you to accept or return it, and so does the `surplus` of a granted payment.",
    tags,
    filter: PaymentFilters.properties,
    answer: ExceptionalPaymentList,
    source: (read, merchantId, { exception, status }) => {
      const filter = { exception, status, exceptional: true }
      return newestFirst(transactions(read, merchantId, filter), byCreation, usualName(filter))
    },
    show: exceptionsOf,
  })

  app.post(
    "/api/console/payments/:id/accept",
    {
      schema: {
        operationId: "acceptPayment",
        summary: "Accepts an open payment, so that it counts as paid",
        description:
          "Grants access or confirms the checkout, with the usual events. If the checkout is already confirmed, you get the money in addition, and no event is sent twice. The money is divided or swept like any other, in its own token. The surplus of a granted payment buys nothing more; it is divided or swept like the rest.",
        tags,
        params: PaymentId,
        body: NoBody,
        response: { 200: ExceptionalPayment },
      },
      config: {
        errors: ["SANCTIONS_MATCH", "NOT_FOUND", "INVALID_OPERATION", "DAILY_LIMIT_REACHED", "CHAIN_UNAVAILABLE"],
        idempotencyKey: true,
      },
      preValidation: orEmptyBody,
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const decided = await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: async () => {
          const payment = await paymentOf(ctx, merchantId, id)
          const screened = await screenDecision(ctx, payment, undefined)
          await assertMoneyThere(ctx, payment)
          return screened
        },
        work: async (ctx, screened) => {
          await lockCaps(ctx, request)
          await acceptPayment(ctx, merchantId, id, screened)
          await countSpend(ctx, request, "accept", id)
          return await readDecided(ctx, merchantId, id)
        },
      })
      await wakeAfterDecision(ctx, [id])
      return decided
    },
  )

  app.post(
    "/api/console/payments/:id/return",
    {
      schema: {
        operationId: "returnPayment",
        summary: "Sends an open payment back, once",
        description:
          "Sends the whole payment, or only the surplus of a granted payment, to `address` in its own token. Without `address`, the money goes to the address that the payer named with a signature (`returnAddress`). It never goes to the sender by default, because the sender may be an exchange. To use an address other than the one the payer named, set `confirm: true`. If the receiving address has a wallet as `approver`, the return needs that wallet's signature: the first request gets `RETURN_APPROVAL_REQUIRED` with the data to sign.",
        tags,
        params: PaymentId,
        body: ReturnOrder,
        response: { 200: ExceptionalPayment },
      },
      config: {
        errors: [
          "SANCTIONS_MATCH",
          "NOT_FOUND",
          "INVALID_OPERATION",
          "DAILY_LIMIT_REACHED",
          "RETURN_APPROVAL_REQUIRED",
          "CHAIN_UNAVAILABLE",
        ],
        idempotencyKey: true,
        walletLock: true,
      },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const order = { ...request.body, id }
      const decided = await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: async () => await prepareReturn(ctx, request, merchantId, order),
        work: async (ctx, prepared) => await carryOut(ctx, request, merchantId, order, prepared),
      })
      await wakeAfterDecision(ctx, [id])
      return decided
    },
  )

  app.post(
    "/api/console/payments/return",
    {
      schema: {
        operationId: "returnPayments",
        summary: "Sends up to 50 open payments back, each independently",
        description:
          "Each payment is returned or refused independently. Send the whole list without `approval` first, sign what the answer asks for, and send it again with another `Idempotency-Key`. A payment that was already returned is refused, so nothing is sent twice.",
        tags,
        body: ReturnOrders,
        response: { 200: ReturnOutcomes },
      },
      config: { errors: ["CHAIN_UNAVAILABLE"], idempotencyKey: true, walletLock: true },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { returns } = request.body
      const answer = await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: async () => {
          const data = []
          for (const [i, order] of returns.entries()) data.push(await returnOne(ctx, request, merchantId, order, i))
          return data
        },
        work: async (_, data) => ({ data }),
      })
      const ids = returns.map(({ id }) => id)
      await wakeAfterDecision(ctx, ids)
      return answer
    },
  )
}

interface ReturnOf {
  id: string
  address?: string
  confirm?: boolean
  approval?: { deadline: number; signature: string }
}

/** Does the part of a return that calls nodes or sanctions lists, so it runs before the transaction. */
async function prepareReturn(
  ctx: SellingContext,
  request: Pick<FastifyRequest, "headers">,
  merchantId: string,
  { id, address: text, approval }: ReturnOf,
) {
  const address = text === undefined ? undefined : addressField("address", text)
  const payment = await returnable(ctx, await paymentOf(ctx, merchantId, id))
  const named = async (ctx: TxContext) => (await namedAddress(ctx, payment))?.address
  const to = address ?? (await named(ctx))
  const screened = await screenDecision(ctx, payment, to)
  const signed = approval && { ...approval, signature: approval.signature as Hex }
  const checked = await checkApproval(ctx, payment, to, signed)
  if (checked) await assertMoneyThere(ctx, payment)
  const locked = await approvedByWallet(ctx, request, merchantId, async ctx => {
    // A return to the address that the payer signed for needs no signature from the merchant.
    if (address === undefined || address === (await named(ctx)) || (await isForWallet(ctx, payment))) return undefined
    const from = "waits for the merchant"
    const to = `sent to ${checksummed(address)}`
    return { words: { action: "Return payment", subject: id, from, to } }
  })
  return { address, screened, checked, locked }
}

async function carryOut(
  ctx: SellingTx,
  request: Pick<FastifyRequest, "apiKey" | "member">,
  merchantId: string,
  { id, confirm = false }: ReturnOf,
  { address, screened, checked, locked }: Awaited<ReturnType<typeof prepareReturn>>,
) {
  await locked.hold(ctx)
  await lockCaps(ctx, request)
  await returnPayment(ctx, merchantId, id, { address, confirm, approval: checked }, screened)
  await countSpend(ctx, request, "return", id)
  return await readDecided(ctx, merchantId, id)
}

/**
 * Makes one of several returns, and responds with the payment, or with the reason why it was not returned. The response
 * is stored with the return, under the request's key and the return's position in the list. If the process dies, a
 * repeated request makes only the missing returns and repeats the other responses.
 */
async function returnOne(
  ctx: SellingContext,
  request: FastifyRequest,
  merchantId: string,
  order: ReturnOf,
  place: number,
) {
  try {
    const payment = await idempotentlyInPart(ctx, request, merchantId, `${place}`, {
      prepare: async () => await prepareReturn(ctx, request, merchantId, order),
      work: async (ctx, prepared) => await carryOut(ctx, request, merchantId, order, prepared),
    })
    return { id: order.id, payment, error: null }
  } catch (error) {
    if (!(error instanceof ApiError) || error.code.startsWith("IDEMPOTENCY_")) throw error
    const { code, message, details } = error
    return { id: order.id, payment: null, error: { error: code, message, ...(details ? { details } : {}) } }
  }
}

async function readDecided(ctx: TxContext, merchantId: string, id: string) {
  const rows = await transactions(ctx, merchantId, { exceptional: true }).where("id", "=", id).execute()
  const [decided] = await exceptionsOf(ctx, rows)
  if (!decided) throw new Error(`${id} is decided and is not there`)
  return decided
}

/** Wakes requests that wait for these payments of the merchant. */
async function wakeAfterDecision(ctx: SellingContext, ids: readonly string[]): Promise<void> {
  await ctx.wakes.wake("payouts")
  const payments = await ctx.db.selectFrom("payments").select(["resource_id", "payer"]).where("id", "in", ids).execute()
  const names = payments.flatMap(({ resource_id: resourceId, payer }) =>
    namesOf(sellableOf(ctx, resourceId), [{ resourceId, senders: [payer] }]),
  )
  await ctx.wakes.wake("payments", names)
}
