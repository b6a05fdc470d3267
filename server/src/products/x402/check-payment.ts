/** Checks whether a payment has the requested terms and can be executed. Writes nothing. */
import { type CheckedRelay, checkRelay, type RefusedRelay } from "../../ledger/relays/accept-relay.ts"
import { isFailing } from "../../ledger/relays/check-payer-limits.ts"
import { authorizationDigest } from "../../platform/chain/authorizations.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError } from "../../platform/errors.ts"
import { networkName, type Payment, type Price, requirementsV2, SCHEME } from "./protocol.ts"
import { type Reason, type Refusal, refuse } from "./reasons.ts"

/**
 * How many seconds an authorization needs from its claim until it is in a block; this is the specification's own
 * margin.
 */
export const MIN_S = 6n

/** The prices for which a payment may have been signed, the current one first. */
export type Prices<P extends Price = Price> = readonly [P, ...P[]]

/**
 * Returns the price for which a payment was signed, whenever that was, or why there is none. The answer to a payment
 * that was claimed in time may be requested later.
 */
export function matchTerms<P extends Price>(prices: Prices<P>, payment: Payment): P | Refusal {
  const { scheme, network, version, accepted, authorization } = payment
  const [current] = prices
  if (scheme !== SCHEME) return refuse("unsupported_scheme")
  if (network !== networkName(current.network, version)) return refuse("invalid_network")
  const to = prices.filter(price => price.payTo === authorization.to)
  if (to.length === 0) return refuse("invalid_exact_evm_payload_recipient_mismatch")
  const price = to.find(each => each.amount === authorization.value)
  if (!price) return refuse("invalid_exact_evm_payload_authorization_value")
  if (accepted && !isAccepted(price, accepted)) return refuse("invalid_payment_requirements")
  return price
}

/**
 * Returns the price that a payment pays now, or why it pays none. With an old price, only authorizations are accepted
 * that end before the old price does. So none is executed after the books stop counting that price.
 */
export function matchPrice<P extends Price>(
  ctx: Pick<Context, "now">,
  prices: Prices<P>,
  payment: Payment,
): P | Refusal {
  const price = matchTerms(prices, payment)
  if ("reason" in price) return price
  const { authorization } = payment
  if (price.pricedUntil && authorization.validBefore * 1_000n > BigInt(price.pricedUntil.getTime()))
    return refuse(
      "invalid_exact_evm_payload_authorization_value",
      `The price has changed. An authorization for the old price must end by ${price.pricedUntil.toISOString()}; pay the current price.`,
    )
  const seconds = BigInt(Math.floor(ctx.now().getTime() / 1_000))
  if (authorization.validAfter > seconds) return refuse("invalid_exact_evm_payload_authorization_valid_after")
  if (authorization.validBefore < seconds + MIN_S) return refuse("invalid_exact_evm_payload_authorization_valid_before")
  return price
}

const isAccepted = (price: Price, accepted: NonNullable<Payment["accepted"]>): boolean => {
  const { amount, asset, payTo } = requirementsV2(price)
  const same = (a: string, b: string) => a.toLowerCase() === b.toLowerCase()
  return accepted.amount === amount && same(accepted.asset, asset) && same(accepted.payTo, payTo)
}

/** A payment that passed the checks and can be executed. */
export interface Checked {
  digest: Hash
  relay: CheckedRelay
}

/**
 * Checks a payment's signature, balance and nonce on chain, so that the relay wallet can execute the payment. Throws
 * `SANCTIONS_MATCH`, `RELAY_UNAVAILABLE`, `CHAIN_UNAVAILABLE`, and `INVALID_OPERATION` for a wallet whose relays keep
 * failing.
 */
export async function checkPayment(
  ctx: Context,
  network: Network,
  { authorization, signature }: Payment,
  { merchantId, purpose }: { merchantId: string; purpose: string },
): Promise<Checked | Refusal> {
  if (await isFailing(ctx, authorization.from))
    throw new ApiError("INVALID_OPERATION", undefined, "Too many of this wallet's authorizations failed today.")
  const digest = authorizationDigest(network, authorization)
  const relay = await checkRelay(ctx, network, { merchantId, purpose, authorization, digest, signature })
  return "refusal" in relay ? refusalOf(relay) : { digest, relay }
}

const byRelay: Partial<Record<RefusedRelay["refusal"], Reason>> = {
  signature: "invalid_exact_evm_payload_signature",
  used: "invalid_exact_evm_nonce_already_used",
  short: "insufficient_funds",
  fails: "invalid_transaction_state",
}

function refusalOf({ refusal, words }: RefusedRelay): Refusal {
  const reason = byRelay[refusal]
  if (reason) return refuse(reason, refusal === "signature" ? `The signature ${words}.` : words || undefined)
  if (refusal === "listed") throw new ApiError("SANCTIONS_MATCH")
  if (refusal === "no_wallet" || refusal === "budget")
    throw new ApiError("RELAY_UNAVAILABLE", undefined, `${words} Nothing was paid; try again later.`.trim())
  throw new ApiError("CHAIN_UNAVAILABLE")
}
