/** Describes the state of a session with an escrow to its payer. Pure. */
import type { Token } from "../../platform/chain/network-facts.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import type { FoldedEscrow } from "./fold-escrow.ts"

type Stands = Pick<FoldedEscrow, "status" | "authorized" | "captured" | "voided" | "reclaimed" | "refunded" | "open">

/** The message while a payment is being reserved. */
export const RESERVING = "The payment is being reserved."

/**
 * The times of a session: its end, the deadline for the merchant's captures, and when the payer may start to reclaim
 * the rest.
 */
interface Times {
  now: Date
  expiresAt: Date
  voidAt: Date
  reclaimAt: Date
}

/** Returns the message of a session; `failure` says why the last reservation failed. */
export function wordsOf(
  { status, authorized, captured, voided, reclaimed, refunded, open }: Stands,
  { amount, token, failure, ...times }: { amount: bigint; token: Token; failure: string | null } & Times,
): string {
  const text = (base: bigint) => `${formatAmount(base, token.decimals)} ${token.symbol}`
  const left = authorized - captured - voided - reclaimed
  const over = () => (open.capture > 0 && times.now < times.reclaimAt ? CAPTURING : timeLeftMessage(text(left), times))
  switch (status) {
    case "pending":
      return failure ?? firstMessage(amount, token)
    case "verifying":
      return RESERVING
    case "authorized":
      if (times.now >= times.voidAt) return over()
      return `${text(authorized)} are reserved for the merchant until ${times.voidAt.toISOString()}. Any amount not captured by then is released.`
    case "voided":
      return reclaimed > 0n
        ? "The payer withdrew the reserved money. Nothing was paid."
        : "The reserved money was released to the payer. Nothing was paid."
    case "confirmed":
      if (captured === authorized) return "The payment is confirmed."
      return `The payment is confirmed: ${text(captured)} of ${text(authorized)} were captured${voided + reclaimed > 0n ? ", and the rest was released" : ""}.${left > 0n && times.now >= times.voidAt ? ` ${over()}` : ""}`
    case "partially_refunded":
      return `${text(refunded)} of ${text(captured)} were refunded.`
    case "refunded":
      return "The payment was refunded."
    case "failed":
      if (times.now < times.expiresAt)
        return "Too many signed payments for this checkout failed. Nothing was paid. Start a new checkout."
      return "The time to pay has ended, and the signed payment failed on chain. Start a new checkout."
    case "expired":
      return "The time to pay has ended. Start a new checkout."
  }
}

/** The message while a capture that was requested in time is executed after the deadline. */
const CAPTURING = "A capture that the merchant requested in time is in progress. The rest is released to the payer."

/** Returns what happens to money that was not captured in time. */
const timeLeftMessage = (left: string, { now, reclaimAt }: Times): string =>
  now < reclaimAt
    ? `The time to capture has ended, and ${left} are being released to the payer. Any amount not returned by ${reclaimAt.toISOString()} can be withdrawn by the payer directly.`
    : `${left} could not be released yet; the service keeps retrying. The payer can withdraw them directly now, with the transaction in \`reclaim\`.`

/** Returns the message of a session that nobody started to pay. */
export const firstMessage = (amount: bigint, token: Token): string =>
  `Sign the payment of ${formatAmount(amount, token.decimals)} ${token.symbol}. The amount is reserved for the merchant, who captures it later.`
