/** `/api/console/payments`: money that waits for the merchant, and its two ways out. */

import { transactions } from "../books/transactions.ts"
import { addressField } from "../chain/address-field.ts"
import { checksummed } from "../chain/hex.ts"
import type { Context, TxContext } from "../context.ts"
import { idempotentlyPrepared } from "../http/idempotency.ts"
import { inData, newestFirst, sendList } from "../http/lists.ts"
import { callingMerchant, orEmptyBody, type Server } from "../http/server.ts"
import { NoBody } from "../identity/schema.ts"
import { approvedByWallet } from "../identity/wallet-lock.ts"
import { exceptionsOf } from "./exception-list.ts"
import { acceptPayment, paymentOf, returnPayment, screenDecision } from "./resolve-exception.ts"
import { namedAddress } from "./return-address.ts"
import { ExceptionalPayment, ExceptionalPaymentList, PaymentId, PaymentQuery, ReturnOrder } from "./schema.ts"

const tags = ["transactions"]

export function exceptionRoutes(app: Server, ctx: Context): void {
  app.get(
    "/api/console/payments",
    {
      schema: {
        operationId: "listExceptionalPayments",
        summary: "Payments that need a decision or got one, newest first",
        description:
          "Payments that were too small, too large, late, made twice, in another token or from a sender on a sanctions list. An `open` one waits for you: accept it, or return it.",
        tags,
        querystring: PaymentQuery,
        response: { 200: ExceptionalPaymentList },
      },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { exception, status, ...page } = request.query
      const query = transactions(ctx, merchantId, { exception, status, exceptional: true })
      return await sendList(ctx, reply, page, newestFirst(query), rows => exceptionsOf(ctx, rows), inData)
    },
  )

  app.post(
    "/api/console/payments/:id/accept",
    {
      schema: {
        operationId: "acceptPayment",
        summary: "Accepts an open payment, so that it counts as paid",
        description:
          "Grants access or confirms the checkout, with the usual events. Where the checkout is already confirmed, the money is yours in addition, and no event is sent twice. The money is divided or swept like any other, in its own token.",
        tags,
        params: PaymentId,
        body: NoBody,
        response: { 200: ExceptionalPayment },
      },
      config: {
        errors: ["SANCTIONS_MATCH", "NOT_FOUND", "INVALID_OPERATION", "CHAIN_UNAVAILABLE"],
        idempotencyKey: true,
      },
      preValidation: orEmptyBody,
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const decided = await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: async () => await screenDecision(ctx, await paymentOf(ctx, merchantId, id), undefined),
        work: async (ctx, screened) => {
          await acceptPayment(ctx, merchantId, id, screened)
          return await readDecided(ctx, merchantId, id)
        },
      })
      await wakeAfterDecision(ctx)
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
          "Sends all of it, in its own token, to `address`. Without `address` it goes to the address that the payer named by signature (`returnAddress`); it never goes to its sender by default, which may be an exchange. To send it to an address other than the one the payer named, set `confirm: true`.",
        tags,
        params: PaymentId,
        body: ReturnOrder,
        response: { 200: ExceptionalPayment },
      },
      config: {
        errors: ["SANCTIONS_MATCH", "NOT_FOUND", "INVALID_OPERATION", "CHAIN_UNAVAILABLE"],
        idempotencyKey: true,
        walletLock: true,
      },
    },
    async (request, reply) => {
      const merchantId = await callingMerchant(request)
      const { id } = request.params
      const { address: text, confirm = false } = request.body
      const address = text === undefined ? undefined : addressField("address", text)
      const decided = await idempotentlyPrepared(ctx, request, reply, merchantId, {
        prepare: async () => {
          const payment = await paymentOf(ctx, merchantId, id)
          const named = async (ctx: TxContext) => (await namedAddress(ctx, payment))?.address
          const screened = await screenDecision(ctx, payment, address ?? (await named(ctx)))
          const approval = await approvedByWallet(ctx, request, merchantId, async ctx => {
            // To where the payer's own signature says, it can go without the merchant's.
            if (address === undefined || address === (await named(ctx))) return undefined
            const [from, to] = ["waits for the merchant", `sent to ${checksummed(address)}`]
            return { words: { action: "Return payment", subject: id, from, to } }
          })
          return { screened, approval }
        },
        work: async (ctx, { screened, approval }) => {
          await approval.hold(ctx)
          await returnPayment(ctx, merchantId, id, { address, confirm }, screened)
          return await readDecided(ctx, merchantId, id)
        },
      })
      await wakeAfterDecision(ctx)
      return decided
    },
  )
}

async function readDecided(ctx: TxContext, merchantId: string, id: string) {
  const rows = await transactions(ctx, merchantId, { exceptional: true }).where("id", "=", id).execute()
  const [decided] = await exceptionsOf(ctx, rows)
  if (!decided) throw new Error(`${id} is decided and is not there`)
  return decided
}

async function wakeAfterDecision(ctx: Context): Promise<void> {
  await ctx.wakes.wake("payouts")
  await ctx.wakes.wake("payments")
  ctx.wakes.wakeSoon("deliveries")
}
