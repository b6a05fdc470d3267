/**
 * The x402 operations that a priced call needs. `app.ts` passes them in, so that `x402` may know bundles while
 * `proxy` knows only this interface.
 */
// I/O: types only. Their implementation has the context.
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { ApiError } from "../../platform/errors.ts"

/** The price of one call, and who is paid. */
interface Price {
  network: Network
  payTo: Address
  /** In base units of the network's token. */
  amount: bigint
  deposit: Row<"deposits">
}

/** An offer of one call. */
export interface Offer {
  merchantId: string
  network: Network
  prices: readonly [Price]
  sold: { url: string; description: string; mimeType: string }
  /** The bundle, method, path with query, and SHA-256 of the body. The payment is valid only for this call. */
  boundTo: readonly string[]
  /** Why nothing is sold now. Calls that were paid earlier are still made. */
  closed: ApiError | undefined
  /** A call is served again only after it failed. */
  isRepeatable: false
  /** How long the call may take, in milliseconds. A process that takes longer counts as killed. */
  answerMs: number
  /** Called once a new payment is valid, before the payment is executed. Throws if the call was ended. */
  onProven: () => void
}

/** A settled payment, for which the request may be served once. */
export interface Paid {
  id: string
  /** The claim with which this request may make the call. */
  claimId: string
  payer: Address
  txHash: Hash
  /** A signed receipt (compact JWS). */
  receipt: string
  /** The token with which a failed call can be repeated. */
  retryToken: string
  /** Whether an earlier request settled the payment. */
  isRetry: boolean
}

export interface Payments {
  /**
   * Takes the payment. Undefined if the request was already answered: with 402 or 202, or because its payment was
   * refused.
   */
  take(ctx: Context, request: FastifyRequest, reply: FastifyReply, offer: Offer): Promise<Paid | undefined>
  /**
   * Finds the payment of a request for this call (`boundTo`) that is not answered yet, with `txHash` once it is
   * settled.
   */
  unserved(
    ctx: Context,
    request: FastifyRequest,
    boundTo: readonly string[],
  ): Promise<{ id: string; txHash: Hash | undefined } | undefined>
  /**
   * Keeps the right to a call while its answer streams, and records the call at the end. If this process is killed
   * before then, the call may be repeated. Returns false if another request has the right.
   */
  begin(ctx: Context, reply: FastifyReply, paid: Paid): Promise<boolean>
  /** Records that the call was made. Returns false if another request has the right to the call. */
  end(ctx: Context, paid: Paid): Promise<boolean>
  /** Lets the next request with the payment make the call, because this caller left before anything was done. */
  release(ctx: Context, paid: Paid): Promise<unknown>
  /**
   * Lets `retryToken` repeat a failed call for 24 hours. Returns false if another request has the right to the call.
   */
  giveBack(ctx: Context, paid: Paid): Promise<boolean>
  /** Does the same for an answer that was cut off, and retries until the database accepts it. */
  giveBackLate(ctx: Context, paid: Paid): Promise<boolean>
}
