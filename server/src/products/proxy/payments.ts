/**
 * The x402 operations that a priced call needs. `app.ts` passes them in, so that `x402` may know bundles while `proxy`
 * knows only this interface.
 */
// I/O: types only; their implementation has the context.
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { ApiError } from "../../platform/errors.ts"

/** The price of one call, and its payee. */
interface Price {
  network: Network
  payTo: Address
  /** Base units of the network's token. */
  amount: bigint
  deposit: Row<"deposits">
}

/** An offer of one call. */
export interface Offer {
  merchantId: string
  network: Network
  prices: readonly [Price]
  sold: { url: string; description: string; mimeType: string }
  /** The bundle, method, path with query, and SHA-256 of the body: the payment is valid only for this call. */
  boundTo: readonly string[]
  /** Why nothing is sold now. Calls paid earlier are still made. */
  closed: ApiError | undefined
  /** A call is served again only after it failed. */
  isRepeatable: false
  /** How long the call may take, in milliseconds. A process that takes longer counts as killed. */
  answerMs: number
  /** Called once a new payment is valid, before it is executed. It throws if the call was ended. */
  onProven: () => void
}

/** A settled payment for which the request may be served once. */
export interface Paid {
  id: string
  /** The claim by which this request may make the call. */
  claimId: string
  payer: Address
  txHash: Hash
  /** A signed receipt (compact JWS). */
  receipt: string
  /** The token that repeats a failed call. */
  retryToken: string
  /** Whether an earlier request settled the payment. */
  isRetry: boolean
}

export interface Payments {
  /**
   * Takes the payment. Undefined if the request was already answered: with 402 or 202, or with the payment's refusal.
   */
  take(ctx: Context, request: FastifyRequest, reply: FastifyReply, offer: Offer): Promise<Paid | undefined>
  /** Finds a request's unanswered payment for this call (`boundTo`), with `txHash` once it is settled. */
  unserved(
    ctx: Context,
    request: FastifyRequest,
    boundTo: readonly string[],
  ): Promise<{ id: string; txHash: Hash | undefined } | undefined>
  /**
   * Keeps the right to a call while its answer streams, and records the call at the end. If this process is killed
   * first, the call may be repeated. False if another request has the right.
   */
  begin(ctx: Context, reply: FastifyReply, paid: Paid): Promise<boolean>
  /** Records that the call was made. False if another request has the right to it. */
  end(ctx: Context, paid: Paid): Promise<boolean>
  /** Lets the next request with the payment make the call, because this caller left before anything was done. */
  release(ctx: Context, paid: Paid): Promise<unknown>
  /** Lets `retryToken` repeat a failed call for 24 hours. False if another request has the right to it. */
  giveBack(ctx: Context, paid: Paid): Promise<boolean>
  /** The same for a cut-off answer, retried until the database accepts it. */
  giveBackLate(ctx: Context, paid: Paid): Promise<boolean>
}
