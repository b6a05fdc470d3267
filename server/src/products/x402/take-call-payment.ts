/** Payments of proxied calls: implements what the proxy needs of x402 (`proxy/payments.ts`). */
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
 * Finds the payment that a request carries, or whose retry token it carries, if it was made for `boundTo` and has not
 * been answered; `txHash` once it is settled. `VALIDATION_ERROR` for headers that can't be read.
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

/** The id of the payment that a request carries; undefined without one. */
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

/** The operations on payments that the proxy uses. */
export const callPayments: Payments = {
  take: takePayment,
  unserved: findUnserved,
  begin: holdWhileAnswering,
  end: recordAnswered,
  release: (ctx, paid) => releaseServing(ctx, paid, true),
  giveBack: noteFailure,
  giveBackLate: noteLateFailure,
}
