/**
 * Handles one request for something with a price, from the 402 to the right to serve the request. This part of the
 * resource server is shared by everything that is sold to agents.
 */
import { randomUUID } from "node:crypto"
import type { FastifyReply, FastifyRequest } from "fastify"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { addressGroup } from "../../platform/limits/buckets.ts"
import { awaitSettlement } from "./await-settlement.ts"
import type { Prices } from "./check-payment.ts"
import { bindingOf, type Claimed, claimPayment, type Offered } from "./claim-payment.ts"
import {
  callerOf,
  followAnswer,
  idOfRetryToken,
  isRetryable,
  RETRY_TOKEN,
  releaseServing,
  retryToken,
  takeRetry,
  takeServing,
} from "./lease-settlement.ts"
import { networkName, paymentRequired, readPayment, responseHeaders, type Sold, type Version } from "./protocol.ts"
import { type Outcome, outcomeOf, readSettlement, resolveOutcome, type Settlement } from "./read-outcome.ts"
import { type Refusal, refuse } from "./reasons.ts"
import { refuseReturned } from "./refuse-returned.ts"
import { offerExtensions, receiptExtensions, signReceipt } from "./sign-statements.ts"

/**
 * How many seconds a request waits for its payment to be mined before it gets a 202. `Prefer: wait=SECONDS` (RFC
 * 7240, 4.3) shortens the wait.
 */
const WAIT_S = 30
/** This status is an answer of the protocol, not an API error. */
const PAYMENT_REQUIRED = 402
/** The number of seconds after which an agent should send the request again. */
const ASK_AGAIN_S = 2

/** What is for sale at a URL. */
export interface Offer {
  merchantId: string
  network: Network
  /** The current price, followed by prices that were offered recently. */
  prices: Prices<Offered>
  sold: Sold
  /** What a payment is for. Only a payment with the same parts is served. */
  boundTo: readonly string[]
  /** Why nothing is sold now. Earlier payments are still served. */
  closed?: ApiError | undefined
  /** Why this is no longer sold, although `renew` offers something else. Earlier payments are still served. */
  over?: Refusal | undefined
  /** Makes the next offer after a refusal, if this offer was for a single payment. */
  renew?: () => Promise<Offer>
  /**
   * Whether a caller that proves its payment is served again at any time (content) or only after a failure (a call).
   */
  isRepeatable: boolean
  /** How long sending an answer may take, in milliseconds. A process that takes longer counts as killed. */
  answerMs?: number
  /** Called once a new payment is valid, before anything about it is written. Throws to refuse the payment. */
  onProven?: () => void
}

/** A settled payment that this request may serve. */
export interface Paid {
  id: string
  /** The claim with which this request may serve the payment. */
  claimId: string
  payer: Address
  txHash: Hash
  /** In base units. */
  amount: bigint
  /** A signed receipt (compact JWS). */
  receipt: string
  retryToken: string
  /** Whether an earlier request settled the payment. */
  isRetry: boolean
}

/**
 * Returns the settled payment that the request may serve, or answers with 402 or 202 and returns undefined. Throws
 * `VALIDATION_ERROR` for unreadable headers, `PAYMENT_ALREADY_SERVED`, `INVALID_OPERATION` if the money was returned,
 * and the errors of `claimPayment`.
 */
export async function takePayment(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  offer: Offer,
): Promise<Paid | undefined> {
  const token = request.headers[RETRY_TOKEN]
  if (token !== undefined) return await redeem(ctx, reply, offer, `${token}`)
  const payment = readPayment(request.headers)
  if (!payment) return await askPrice(ctx, reply, offer)
  const caller = callerOf(ctx, request)
  const sale = { ...offer, binding: bindingOf(...offer.boundTo), purpose: `agent:${offer.sold.url}`, caller }
  const claimed = await claimPayment(ctx, sale, payment)
  if ("reason" in claimed) return await askForPayment(ctx, reply, offer, claimed)
  const { settlement, claimId } = claimed
  const isMine = settlement.claim_id === claimId
  followAnswer(ctx, reply, { id: settlement.id, claimId, evenServed: offer.isRepeatable })
  const outcome = await awaitOutcome(ctx, request, reply, offer.network, claimed)
  if (reply.raw.destroyed) return undefined
  if (outcome.state === "settled")
    return await serve(ctx, reply, offer, { ...claimed, caller }, payment.version, outcome.txHash)
  if (outcome.state === "failed" && outcome.replayableUntil === undefined)
    return await askForPayment(ctx, reply, offer, refuse("settlement_failed", outcome.words))
  return sendPending(ctx, reply, settlement.id, isMine ? "token" : "no token")
}

/** Responds with 402 to a request without a payment; throws the reason if nothing is sold now. */
export async function askPrice(ctx: Context, reply: FastifyReply, offer: Offer): Promise<undefined> {
  if (offer.closed) throw offer.closed
  return await askForPayment(ctx, reply, offer, "Payment is required.")
}

/** Responds with 402: the price, and the reason why a payment was refused. */
async function askForPayment(
  ctx: Context,
  reply: FastifyReply,
  asked: Offer,
  refusal: string | Refusal,
): Promise<undefined> {
  const { prices, sold } = asked.renew ? await asked.renew() : asked
  const [price] = prices
  const [error, message] = typeof refusal === "string" ? [refusal, refusal] : [refusal.reason, refusal.words]
  const { header, body } = paymentRequired(price, sold, error, await offerExtensions(ctx, price, sold))
  await reply
    .code(PAYMENT_REQUIRED)
    .header("payment-required", header)
    .send({ ...body, message })
}

/** For each payment, how many requests of this process wait in addition to the one that created it. */
const waiting = new Map<string, number>()
/**
 * The most such requests per payment; any further one gets a 202 immediately. A hundred requests with one payment
 * must not use up other payers' slots.
 */
const MAX_WAITING = 10

/**
 * The most requests from one address that may wait, for any payments. It is the same as the limit of a caller's
 * concurrent calls.
 */
const MAX_BY_ADDRESS = 50

/**
 * Waits until this request may serve the settled payment, until another request has served it, or until the time is
 * up.
 */
async function awaitOutcome(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  network: Network,
  { settlement, claimId, isIdentified }: Claimed,
): Promise<Outcome> {
  const waitS = Math.min(WAIT_S, Number(/(?:^|[,\s])wait=(\d{1,4})\b/.exec(`${request.headers.prefer}`)?.[1] ?? WAIT_S))
  const caller = callerOf(ctx, request)
  const others = waiting.get(settlement.id) ?? 0
  const isMine = settlement.claim_id === claimId
  const isOver = (row: Settlement) => {
    if (outcomeOf(row)?.state !== "settled") return true
    return isIdentified || row.answered_at !== null || row.claim_id === claimId || row.is_free || row.caller !== caller
  }
  if (!isMine) waiting.set(settlement.id, others + 1)
  try {
    const holder = { name: addressGroup(request.ip), most: MAX_BY_ADDRESS }
    const patience = { waitS: isMine || others < MAX_WAITING ? waitS : 0, holder }
    return await resolveOutcome(ctx, network, await awaitSettlement(ctx, reply, settlement, patience, isOver))
  } finally {
    const left = (waiting.get(settlement.id) ?? 1) - 1
    if (!isMine && left > 0) waiting.set(settlement.id, left)
    else if (!isMine) waiting.delete(settlement.id)
  }
}

async function serve(
  ctx: Context,
  reply: FastifyReply,
  offer: Offer,
  { settlement, claimId, isIdentified, caller }: Claimed & { caller: string },
  version: Version,
  txHash: Hash,
): Promise<Paid | undefined> {
  // The request that made the payment is answered long before anyone can decide about the money.
  if (settlement.claim_id !== claimId) await refuseReturned(ctx, settlement, txHash)
  const right = { id: settlement.id, claimId }
  const first = await takeServing(ctx, right, caller, offer.answerMs)
  const paid = await paidOf(ctx, reply, offer, { ...settlement, claimId, version, txHash })
  const mayRepeat = isIdentified && isRetryable(ctx, settlement)
  if (!first && !(mayRepeat && (await takeRetry(ctx, right, offer.isRepeatable, offer.answerMs)))) {
    const { answered_at, caller: firstCaller } = (await readSettlement(ctx, settlement.id)) ?? settlement
    if (answered_at !== null || firstCaller !== caller) throw new ApiError("PAYMENT_ALREADY_SERVED")
    return sendPending(ctx, reply, settlement.id, "under way")
  }
  if (reply.raw.destroyed) {
    // The caller has just disconnected, and serving has not started.
    await releaseServing(ctx, right, true)
    return undefined
  }
  reply.header(RETRY_TOKEN, paid.retryToken)
  return { ...paid, isRetry: !first || first.hasFailed }
}

/** Serves a payment again to a caller that has the retry token. */
async function redeem(ctx: Context, reply: FastifyReply, offer: Offer, token: string): Promise<Paid | undefined> {
  const id = idOfRetryToken(ctx, token)
  const settlement = id === undefined ? undefined : await readSettlement(ctx, id)
  if (!settlement || settlement.binding !== bindingOf(...offer.boundTo) || !isRetryable(ctx, settlement))
    throw invalid(
      "Sluice-Retry-Token",
      "is not valid for this request: send it with its original request, within 24 hours",
    )
  const outcome = await resolveOutcome(ctx, offer.network, settlement)
  if (outcome.state === "failed" && outcome.replayableUntil === undefined)
    return await askForPayment(ctx, reply, offer, refuse("settlement_failed", outcome.words))
  if (outcome.state !== "settled") return sendPending(ctx, reply, settlement.id, "token")
  await refuseReturned(ctx, settlement, outcome.txHash)
  const claimId = randomUUID()
  const paid = await paidOf(ctx, reply, offer, { ...settlement, claimId, version: 2, txHash: outcome.txHash })
  if (!(await takeRetry(ctx, paid, offer.isRepeatable, offer.answerMs))) {
    if (settlement.answered_at !== null) throw new ApiError("PAYMENT_ALREADY_SERVED")
    return sendPending(ctx, reply, settlement.id, "under way")
  }
  followAnswer(ctx, reply, { ...paid, evenServed: offer.isRepeatable })
  reply.header(RETRY_TOKEN, paid.retryToken)
  return { ...paid, isRetry: true }
}

/** Sets the headers that tell how the payment was settled, and returns the payment. */
async function paidOf(
  ctx: Context,
  reply: FastifyReply,
  { network, sold }: Offer,
  {
    id,
    claimId,
    payer,
    amount,
    txHash,
    version,
  }: Pick<Row<"settlements">, "id" | "payer" | "amount"> & { claimId: string; txHash: Hash; version: Version },
): Promise<Omit<Paid, "isRetry">> {
  const receipt = await signReceipt(ctx, { network, url: sold.url, payer, txHash })
  const answer = {
    success: true,
    payer: checksummed(payer),
    transaction: txHash,
    network: networkName(network, version),
    ...(version === 2 ? { extensions: receiptExtensions(receipt) } : {}),
  }
  reply.headers(responseHeaders(version, answer))
  return { id, claimId, payer, txHash, amount, receipt, retryToken: retryToken(ctx, id) }
}

const pendingWords = {
  token:
    "The payment is in progress. Do not pay again: check its status, then repeat this request with the `Sluice-Retry-Token` of this answer.",
  "no token": "The payment is in progress. Do not pay again: check its status, then repeat this request.",
  "under way":
    "The payment is settled, and another request with it is being answered. Do not pay again. If that request was yours and broke off, repeat this one: it is answered once the other has certainly ended, within two minutes.",
}

/**
 * Responds with 202: the payment is not served yet, and must not be made again. Only the first request, and requests
 * that already carry the retry token, get that token.
 */
function sendPending(ctx: Context, reply: FastifyReply, id: string, kind: keyof typeof pendingWords): undefined {
  const statusUrl = `${ctx.settings.baseUrl}/api/agent/payments/${id}`
  void reply
    .code(202)
    .header("retry-after", ASK_AGAIN_S)
    .header("location", statusUrl)
    .headers(kind === "token" ? { [RETRY_TOKEN]: retryToken(ctx, id) } : {})
    .send({ status: "settlement_pending", message: pendingWords[kind], statusUrl })
}
