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
  /** Hex SHA-256 of method, path, query and body: the payment is good for this call alone. */
  binding: string
  /** A call is served again only after it failed. */
  isRepeatable: false
}

/** A settled payment that the request may be served for, once. */
export interface Paid {
  id: string
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
  /** Lets `retryToken` repeat the call for 24 hours: it was not answered. */
  giveBack(ctx: Context, paid: Paid, reason: string): Promise<unknown>
}
