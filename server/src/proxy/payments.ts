/** What a priced call needs of x402. `app.ts` hands it over, so that `x402` may know bundles and `proxy` knows only this. */
// I/O: types alone; whoever implements them has the context.
import type { FastifyReply, FastifyRequest } from "fastify"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"

/** What one call costs, and where its money goes. */
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
  /** The bundle, method, path with query, and SHA-256 of the body: the payment is good for this call alone. */
  boundTo: readonly string[]
  /** A call is served again only after it failed. */
  isRepeatable: false
  /** How long the call may take until its process was surely killed, in milliseconds. */
  answerMs: number
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
  /** Repeats a call that failed. */
  retryToken: string
  /** Whether it was settled for an earlier request. */
  isRetry: boolean
}

export interface Payments {
  /** The payment, or undefined where the request was answered: with 402 or 202, or with why its payment is not good. */
  take(ctx: Context, request: FastifyRequest, reply: FastifyReply, offer: Offer): Promise<Paid | undefined>
  /** The payment of a request that was made for this call (`boundTo`) and that nobody was answered for; its hash once it is settled. */
  unserved(
    ctx: Context,
    request: FastifyRequest,
    boundTo: readonly string[],
  ): Promise<{ id: string; txHash: Hash | undefined } | undefined>
  /** Records that the call was made, however long its answer streams; false where another request has the right to it. */
  end(ctx: Context, paid: Paid): Promise<boolean>
  /** Lets the next request with the payment make the call: its caller has gone, and nothing was done. */
  release(ctx: Context, paid: Paid): Promise<unknown>
  /** Lets `retryToken` repeat the call for 24 hours: it failed. False where another request has the right to it. */
  giveBack(ctx: Context, paid: Paid): Promise<boolean>
}
