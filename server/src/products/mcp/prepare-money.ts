/**
 * The tools that move money in two steps. The first step prepares a request and returns a sentence and a token. The
 * second step sends the request. The assistant takes both steps, so neither is a safeguard. The safeguard is the cap
 * of the assistant's key, which the service enforces where money is spent.
 */
import { Type } from "typebox"
import { transactions } from "../../ledger/books/read-transactions.ts"
import { exceptionsOf } from "../../ledger/settlement/list-exceptions.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import type { Prepared } from "./confirmation.ts"
import type { Input } from "./tool.ts"

/** A tool for the first step: its input, and how it prepares the request. */
export interface MoneyTool {
  title: string
  does: string
  asks: `POST /${string}`
  input: ReturnType<typeof Type.Object>
  /** Prepares the request; throws if it can't succeed. The request does exactly what the sentence says. */
  prepare(ctx: Context, merchantId: string, input: Input): Promise<Pick<Prepared, "path" | "body" | "sentence">>
}

const amount = Type.String({
  pattern: "^\\d{1,7}(\\.\\d{1,18})?$",
  description: "In whole tokens, such as 5.00. Say how much: there is no default",
})
const sessionId = Type.String({ pattern: "^cs_[a-z0-9]{24}$", description: "The id of the checkout" })
const strict = { additionalProperties: false }

/** The tools by name. */
export const moneyTools: Record<string, MoneyTool> = {
  prepare_return: {
    title: "Prepare a return",
    does: "Prepares to send an open payment back, to the address that its payer named by a signature and to no other. Show the sentence to the person, and call `confirm` with the token.",
    asks: "POST /api/console/payments/:id/return",
    input: Type.Object(
      { id: Type.String({ pattern: "^pay_[a-z0-9]{24}$", description: "The id of the payment" }) },
      strict,
    ),
    prepare: async (ctx, merchantId, { id }) => {
      const rows = await transactions(ctx, merchantId, { exceptional: true }).where("id", "=", id).execute()
      const [payment] = await exceptionsOf(ctx, rows)
      if (!payment) throw new ApiError("NOT_FOUND", undefined, "No payment that waits for a decision has this id.")
      const { surplus, returnAddress, approver, currency } = payment
      const open = payment.status === "open" ? payment.amount : surplus?.status === "open" ? surplus.amount : undefined
      if (open === undefined) throw refused("The payment is decided already; nothing of it waits.")
      if (returnAddress === null)
        throw refused(
          "Its payer has named no return address by a signature. A person can return it in the console to an address that they check.",
        )
      if (approver !== null)
        throw refused("Its return needs the signature of a wallet. A person makes it in the console.")
      return {
        path: `/api/console/payments/${id}/return`,
        body: { address: returnAddress },
        sentence: `Return ${open} ${currency} of ${id} to ${returnAddress}, named by the payer's signature.`,
      }
    },
  },
  prepare_refund: {
    title: "Prepare a refund",
    does: "Prepares to refund a captured payment through escrow, to its payer. Show the sentence to the person, and call `confirm` with the token.",
    asks: "POST /api/console/payments/refund",
    input: Type.Object({ sessionId, amount }, strict),
    prepare: async (ctx, merchantId, { sessionId: id, amount: given }) => {
      const { currency, payer } = await escrowOf(ctx, merchantId, id)
      return {
        path: "/api/console/payments/refund",
        body: { sessionId: id, amount: given },
        sentence: `Refund ${given} ${currency} of ${id} from the merchant's wallet to ${payer}, its payer.`,
      }
    },
  },
  prepare_capture: {
    title: "Prepare a capture",
    does: "Prepares to capture money that a payer has reserved: it goes to the merchant's payout address. Show the sentence to the person, and call `confirm` with the token.",
    asks: "POST /api/console/payments/capture",
    input: Type.Object({ sessionId, amount }, strict),
    prepare: async (ctx, merchantId, { sessionId: id, amount: given }) => {
      const { currency } = await escrowOf(ctx, merchantId, id)
      return {
        path: "/api/console/payments/capture",
        body: { sessionId: id, amount: given },
        sentence: `Capture ${given} ${currency} of ${id} to the merchant's payout address.`,
      }
    },
  },
}

const refused = (message: string) => new ApiError("INVALID_OPERATION", undefined, message)

async function escrowOf(ctx: Context, merchantId: string, id: string): Promise<{ currency: string; payer: string }> {
  const row = await ctx.db
    .selectFrom("checkout_sessions as s")
    .leftJoin("escrows as e", "e.session_id", "s.id")
    .select(["s.currency", "e.payer"])
    .where("s.id", "=", id)
    .where("s.merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!row) throw new ApiError("SESSION_NOT_FOUND")
  if (row.payer === null) throw refused("No money of this checkout is reserved in an escrow.")
  return { currency: row.currency, payer: checksummed(row.payer) }
}
