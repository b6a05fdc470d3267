/** Takes the payments for proxied calls: implements the x402 operations of the proxy (`proxy/payments.ts`). */
import type { FastifyRequest } from "fastify"
import type { Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { Payments } from "../proxy/payments.ts"
import { bindingOf } from "./claim-payment.ts"
import {
  holdWhileAnswering,
  idOfRetryToken,
  isRetryable,
  noteFailure,
  noteLateFailure,
  RETRY_TOKEN,
  recordAnswered,
  releaseServing,
} from "./lease-settlement.ts"
import { readPayment } from "./protocol.ts"
import { readSettlement, recentOutcome } from "./read-outcome.ts"
import { takePayment } from "./take-payment.ts"

/**
 * Finds the payment for `boundTo` that a request names by its payment or its retry token, if that payment is not
 * answered yet. `txHash` is set once the payment is settled. Throws `VALIDATION_ERROR` for unreadable headers.
 */
async function findUnserved(
  ctx: Context,
  { headers }: FastifyRequest,
  boundTo: readonly string[],
): Promise<{ id: string; txHash: Hash | undefined } | undefined> {
  const token = headers[RETRY_TOKEN]
  const id = token === undefined ? await idOfPayment(ctx, headers) : idOfRetryToken(ctx, `${token}`)
  const row = id === undefined ? undefined : await readSettlement(ctx, id)
  if (!row || row.binding !== bindingOf(...boundTo) || !isRetryable(ctx, row)) return undefined
  if (row.served_at !== null && row.answered_at !== null) return undefined
  const outcome = await recentOutcome(ctx, networkOf(ctx.chain, row.chain_id), row)
  if (outcome.state === "failed" && outcome.replayableUntil === undefined) return undefined
  return { id: row.id, txHash: outcome.state === "settled" ? outcome.txHash : undefined }
}

/** The id of a request's payment; undefined if there is none. */
async function idOfPayment(ctx: TxContext, headers: FastifyRequest["headers"]): Promise<string | undefined> {
  const payment = readPayment(headers)
  if (!payment) return undefined
  const { networks } = ctx.chain
  const found = await ctx.db
    .selectFrom("settlements")
    .select("id")
    .where(
      "chain_id",
      "in",
      networks.map(({ chainId }) => chainId),
    )
    .where(
      "token",
      "in",
      networks.map(({ token }) => token.address),
    )
    .where("payer", "=", payment.authorization.from)
    .where("nonce", "=", payment.authorization.nonce)
    .where("payload_hash", "=", payment.hash)
    .executeTakeFirst()
  return found?.id
}

/** The payment operations for the proxy. */
export const callPayments: Payments = {
  take: takePayment,
  unserved: findUnserved,
  begin: holdWhileAnswering,
  end: recordAnswered,
  release: (ctx, paid) => releaseServing(ctx, paid, true),
  giveBack: noteFailure,
  giveBackLate: noteLateFailure,
}
