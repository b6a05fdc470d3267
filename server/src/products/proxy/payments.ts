/**
 * The operations that a priced call needs of x402. `app.ts` passes them in, so that `x402` may know bundles while
 * `proxy` knows only this interface.
 */
// I/O: types only; their implementation has the context.
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { ApiError } from "../../platform/errors.ts"

/** The price of one call, and where its money goes. */
interface Price {
  network: Network
  payTo: Address
  /** Base units of the network's token. */
  amount: bigint
  deposit: Row<"deposits">
}

/** What is for sale: one call. */
export interface Offer {
  merchantId: string
  network: Network
  prices: readonly [Price]
  sold: { url: string; description: string; mimeType: string }
  /** The bundle, method, path with query, and SHA-256 of the body: the payment is valid for this call only. */
  boundTo: readonly string[]
  /** Why nothing is sold now. A call that was paid for before is still made. */
  closed: ApiError | undefined
  /** A call is served again only after it failed. */
  isRepeatable: false
  /** How long the call may take, in milliseconds. After that its process must have been killed. */
  answerMs: number
  /** Called once a new payment is known to be good, before it is carried out. It throws where the call was ended. */
  onProven: () => void
}

/** A settled payment that the request may be served for, once. */
export interface Paid {
  id: string
  /** The claim by which this request holds the right to make the call. */
  claimId: string
  payer: Address
  txHash: Hash
  /** A signed receipt (compact JWS). */
  receipt: string
  /** The token that repeats a failed call. */
  retryToken: string
  /** Whether the payment was settled for an earlier request. */
  isRetry: boolean
}

export interface Payments {
  /**
   * Takes the payment. Undefined where the request was answered: with 402 or 202, or with the reason why its payment is
   * refused.
   */
  take(ctx: Context, request: FastifyRequest, reply: FastifyReply, offer: Offer): Promise<Paid | undefined>
  /**
   * Finds the payment that a request carries for this call (`boundTo`), if it was not answered yet; `txHash` once it is
   * settled.
   */
  unserved(
    ctx: Context,
    request: FastifyRequest,
    boundTo: readonly string[],
  ): Promise<{ id: string; txHash: Hash | undefined } | undefined>
  /**
   * Keeps the right to a call while its answer streams, and records the call at the end of that: if this process is
   * killed before, the call may be repeated. False where another request has the right to it.
   */
  begin(ctx: Context, reply: FastifyReply, paid: Paid): Promise<boolean>
  /** Records that the call was made. False where another request has the right to it. */
  end(ctx: Context, paid: Paid): Promise<boolean>
  /** Lets the next request with the payment make the call: this caller disconnected, and nothing was done. */
  release(ctx: Context, paid: Paid): Promise<unknown>
  /** Lets `retryToken` repeat a failed call for 24 hours. False where another request has the right to it. */
  giveBack(ctx: Context, paid: Paid): Promise<boolean>
  /** The same for an answer that was cut off; it is tried until the database takes it. */
  giveBackLate(ctx: Context, paid: Paid): Promise<boolean>
}
