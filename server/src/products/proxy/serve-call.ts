/**
 * Serves a proxied call, from its path to the last byte of the origin's answer. Every check that can refuse the call
 * comes first, then the payment, then the origin. If the call fails at the origin, the payer can repeat it without
 * paying again.
 */
import { finished } from "node:stream"
import type { FastifyReply, FastifyRequest } from "fastify"
import { bundleDeposit } from "../../ledger/deposits/make-bundle-deposit.ts"
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { pausedDeposits } from "../../ledger/payouts/check-paused.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError, errorTable, invalid } from "../../platform/errors.ts"
import { goneSignal } from "../../platform/http/gone.ts"
import { keepOpen } from "../../platform/http/held-connections.ts"
import { dropSlowReader } from "../../platform/http/send-parts.ts"
import { addressGroup } from "../../platform/limits/buckets.ts"
import type { Slots } from "./call-slots.ts"
import type { Forwarder, OriginAnswer } from "./forward.ts"
import { headersForCaller, headersForOrigin, isLoop, VIA } from "./headers.ts"
import type { CallBundle, CallRoute, FindBundle } from "./load-bundle.ts"
import { matchRoute } from "./match-route.ts"
import { isBodiless } from "./origin-answer.ts"
import { type Path, readPath, splitUrl } from "./path.ts"
import type { Offer, Paid, Payments } from "./payments.ts"
import { recordFailure, recordServed } from "./record-failures.ts"
import { boundTo, refuseUnsold } from "./refuse-unsold.ts"

/** The parts that all calls share. */
export interface Parts {
  find: FindBundle
  forwarder: Forwarder
  places: Slots
  payments: Payments | undefined
}

/** A request, and the route that it matches. */
interface Call {
  bundle: CallBundle
  route: CallRoute
  path: Path
  query: string
  body: Buffer | undefined
}

/**
 * Answers one request to `/api/p/{slug}/{path}`. Throws `VALIDATION_ERROR`, `NOT_FOUND`, `ORIGIN_BUSY`,
 * `PAYMENTS_PAUSED`.
 */
export async function serveCall(
  ctx: Context,
  parts: Parts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<FastifyReply> {
  const call = await findCall(ctx, parts, request)
  const isFree = call.route.price === 0n
  const ended = new AbortController()
  const place = parts.places.take(
    { merchantId: call.bundle.merchantId, caller: addressGroup(request.ip), bytes: call.body?.length ?? 0, isFree },
    () => ended.abort("ended for another call"),
  )
  if (!place) throw new ApiError("ORIGIN_BUSY")
  const gone = goneSignal(reply.raw)
  if (gone.aborted) {
    place.leave()
    return reply
  }
  gone.addEventListener("abort", place.leave)
  if (isFree) return await answer(ctx, parts, request, reply, call, undefined, AbortSignal.any([gone, ended.signal]))
  // The caller may also pay from any wallet, and then the scan must find the transfer.
  await watch(ctx, call.bundle.id)
  if (!parts.payments) throw new ApiError("PAYMENTS_PAUSED")
  const { payments } = parts
  const offer = await offerOf(ctx, request, call)
  const keep = () => {
    keepOpen(request.raw.socket)
    return place.keep()
  }
  // Runs before the payment: a call that was ended in the meantime is refused, and a paying call can no longer be
  // ended.
  const onProven = () => {
    if (!keep()) throw new ApiError("ORIGIN_BUSY")
  }
  const paid = await payments.take(ctx, request, reply, { ...offer, onProven })
  if (!paid) return reply
  if (!keep()) {
    // An earlier request made the payment. This request did not pay, so it could be ended.
    await payments.release(ctx, paid)
    throw new ApiError("ORIGIN_BUSY", undefined, KEPT)
  }
  try {
    return await answer(ctx, parts, request, reply, call, { payments, paid }, gone)
  } catch (error) {
    // No-op if another request serves the payment because the lease of this one expired.
    await payments.giveBack(ctx, paid)
    throw error
  }
}

const KEPT =
  "Too many calls are in progress, either to this merchant's APIs or from you. Your payment is kept: repeat the same request in a moment, and do not pay again."

async function findCall(ctx: Context, { find, payments }: Parts, request: FastifyRequest): Promise<Call> {
  const { slug } = request.params as { slug: string }
  const { method } = request
  const body = Buffer.isBuffer(request.body) ? request.body : undefined
  const bundle = await find(ctx, slug)
  const url = splitUrl(request.raw.url ?? "")
  const path = url && readPath(url.path)
  const notSold = async (words: string): Promise<never> => {
    if (payments && url && typeof path === "object")
      await refuseUnsold(ctx, payments, request, { slug, path: path.text, query: url.query, body })
    throw new ApiError("NOT_FOUND", undefined, words)
  }
  if (!bundle) return await notSold(`There is no API at /api/p/${slug}.`)
  if (typeof path === "string") throw invalid("path", path)
  if (!url || !path) throw invalid("path", "must be percent-encoded, without `#`")
  const route = matchRoute(bundle.routes, method, path)
  if (!route) {
    const asked = `${method} ${path.text.slice(0, 200)}`
    return await notSold(`${bundle.name} has no route for ${asked}. GET /api/p/${slug} lists its routes.`)
  }
  if (isLoop(request.headers.via))
    throw invalid("Via", "names this kind of proxy, so the API's origin leads back to it")
  return { bundle, route, path, query: url.query, body }
}

async function offerOf(
  ctx: Context,
  { method }: FastifyRequest,
  { bundle, route, path, query, body }: Call,
): Promise<Omit<Offer, "onProven">> {
  const network = networkOf(ctx.chain, bundle.chainId)
  const deposit = await bundleDeposit(ctx, bundle.id)
  const target = `${path.text}${query}`
  return {
    merchantId: bundle.merchantId,
    network,
    prices: [{ network, payTo: deposit.address, amount: route.price, deposit }],
    sold: {
      url: `${ctx.settings.baseUrl}/api/p/${bundle.slug}${target}`,
      description: route.description ?? `${bundle.name}: ${route.method} ${route.path}`,
      mimeType: "application/json",
    },
    boundTo: boundTo(bundle.id, method, target, body),
    closed: (await pausedDeposits(ctx))(network, deposit) ? new ApiError("PAYMENTS_PAUSED") : undefined,
    isRepeatable: false,
    answerMs: ctx.settings.originTimeoutMs + MARGIN_MS,
  }
}

/**
 * How much longer than the forwarded request the right to make a call lasts, so that it does not expire during the
 * call.
 */
const MARGIN_MS = 60_000

/** The payment of a paid call, and the operations on that payment. */
interface PaidCall {
  payments: Payments
  paid: Paid
}

async function answer(
  ctx: Context,
  parts: Parts,
  request: FastifyRequest,
  reply: FastifyReply,
  call: Call,
  bought: PaidCall | undefined,
  signal: AbortSignal,
): Promise<FastifyReply> {
  const { bundle, path, query, body } = call
  const paid = bought?.paid
  if (signal.aborted) {
    // The origin was not called, so the payment can be used again.
    await bought?.payments.release(ctx, bought.paid)
    return unanswered(reply)
  }
  const own = {
    ...bundle.headers,
    via: VIA,
    "x-request-id": request.id,
    ...(paid ? { "sluice-payment": paid.receipt } : {}),
  }
  const headers = headersForOrigin(request.raw.rawHeaders, own)
  const target = { merchantId: bundle.merchantId, originUrl: bundle.originUrl, path: path.text + query }
  const found = await parts.forwarder.forward({ ...target, method: request.method, headers, body }, signal)
  if (signal.aborted) return await endUnread(ctx, request, reply, bought, found)
  if (found.failure !== undefined) return await sendFailure(ctx, request, reply, call, bought, found)
  if (bought) {
    const { payments, paid } = bought
    // A read may be repeated if this process is killed before the answer. Any other call is made only once, because
    // the origin has already done the work.
    const isMine = onlyReads(request) ? payments.begin(ctx, reply, paid) : payments.end(ctx, paid)
    if (!(await isMine)) {
      drop(found)
      throw new ApiError("PAYMENT_ALREADY_SERVED")
    }
    finished(found.body, error => void (error && !signal.aborted && failLate(ctx, request, call, bought)))
    if (paid.isRetry) await recordServed(ctx, paid.id)
  }
  return sendAnswer(ctx, request, reply, found)
}

const onlyReads = ({ method }: FastifyRequest): boolean => method === "GET" || method === "HEAD"

/** Discards an origin's answer that nobody reads. */
export function drop(found: OriginAnswer): void {
  if (found.failure === undefined) found.body.on("error", () => undefined).destroy()
}

/** Ends a call whose caller left, or that another call displaced. A displaced caller gets a 503. */
function unanswered(reply: FastifyReply): FastifyReply {
  if (!reply.raw.destroyed) throw new ApiError("ORIGIN_BUSY")
  return reply
}

/**
 * Ends a call whose caller disconnected before the answer started. The payer may repeat a read, or a call that never
 * reached the origin. For other calls, the origin may have done the work, and would do it again unpaid.
 */
async function endUnread(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  bought: PaidCall | undefined,
  found: OriginAnswer,
): Promise<FastifyReply> {
  drop(found)
  if (!bought) return unanswered(reply)
  const { payments, paid } = bought
  const wasSent = found.failure === undefined || found.wasSent
  const mayRepeat = !wasSent || onlyReads(request)
  await (mayRepeat ? payments.release(ctx, paid) : payments.end(ctx, paid))
  return reply
}

/** Streams the answer as it arrives, no faster than the caller reads it. */
function sendAnswer(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  { status, headers, body }: Extract<OriginAnswer, { failure?: undefined }>,
): FastifyReply {
  const passed = headersForCaller(status, headers)
  reply.code(status).headers(passed)
  if (isBodiless(request.method, status)) {
    body.on("error", () => undefined).resume()
    return reply.send()
  }
  finished(body, dropSlowReader(ctx, reply))
  // If the body fails before its first byte, the error handler answers, without the type and length that the origin
  // sent.
  body.once("error", () => {
    if (!reply.raw.headersSent) for (const name of Object.keys(passed)) reply.removeHeader(name)
  })
  return reply.send(body)
}

/** Responds with 502. The payment is given back first, so that the retry token works as soon as the caller reads it. */
async function sendFailure(
  ctx: Context,
  request: FastifyRequest,
  reply: FastifyReply,
  call: Call,
  bought: PaidCall | undefined,
  { failure, shown }: Extract<OriginAnswer, { failure: string }>,
): Promise<FastifyReply> {
  const paid = bought?.paid
  if (bought && paid) {
    if (!(await bought.payments.giveBack(ctx, paid))) throw new ApiError("PAYMENT_ALREADY_SERVED")
    await recordFailure(ctx, failureOfCall(request, call, paid, failure))
  }
  ctx.log.info({ requestId: request.id, bundleId: call.bundle.id, failure }, "an origin failed")
  const { status } = errorTable.ORIGIN_FAILED
  const kept = paid
    ? " Your payment is kept: repeat the same request with `Sluice-Retry-Token: <retryToken>` within 24 hours, and do not pay again."
    : " Try again later."
  return reply.code(status).send({
    error: "ORIGIN_FAILED",
    message: `The API behind this address ${shown}.${kept}`,
    requestId: request.id,
    ...(paid ? { retryToken: paid.retryToken } : {}),
  })
}

/** Handles an answer that the origin cut short. The caller received a part of the answer, and may repeat the call. */
async function failLate(
  ctx: Context,
  request: FastifyRequest,
  call: Call,
  { payments, paid }: PaidCall,
): Promise<void> {
  const reason = "did not end its answer"
  try {
    if (await payments.giveBackLate(ctx, paid)) await recordFailure(ctx, failureOfCall(request, call, paid, reason))
  } catch (error) {
    ctx.log.error(
      { err: error, requestId: request.id },
      "the payment of a call that was cut off could not be given back",
    )
  }
}

const failureOfCall = ({ method }: FastifyRequest, { bundle, path }: Call, { id }: Paid, reason: string) => ({
  payment_id: id,
  bundle_id: bundle.id,
  method,
  path: path.text.slice(0, 2_048),
  reason: reason.slice(0, 2_000),
})
