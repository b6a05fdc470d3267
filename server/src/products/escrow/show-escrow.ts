/** Formats an escrow for its merchant and its payer. Pure. */
import { reclaimCall } from "../../platform/chain/escrow.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Row } from "../../platform/db/schema.ts"
import { payoutIdOf } from "../../platform/ids.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { paymentInfoOf, secondsOf } from "./payment-info.ts"

/** The statuses in which the payer has nothing left to do. */
export const paidStatuses: readonly Row<"checkout_sessions">["status"][] = [
  "authorized",
  "confirmed",
  "partially_refunded",
  "refunded",
]

/** Formats a session's escrow for its merchant; amounts are decimal text. */
export function shownEscrow({ token: { decimals } }: NetworkInfo, escrow: Row<"escrows">) {
  const { authorized, captured, voided, reclaimed, refunded } = escrow
  const text = (amount: bigint) => formatAmount(amount, decimals)
  const orNull = (address: Address | null) => address && checksummed(address)
  return {
    address: checksummed(escrow.escrow),
    collector: checksummed(escrow.collector),
    refundCollector: orNull(escrow.refund_collector),
    receiver: checksummed(escrow.receiver),
    authorized: text(authorized),
    captured: text(captured),
    released: text(voided + reclaimed),
    refunded: text(refunded),
    capturable: text(authorized - captured - voided - reclaimed),
    refundable: text(captured - refunded),
    authorizeBefore: escrow.pre_approval_expiry.toISOString(),
    captureBefore: escrow.void_at.toISOString(),
    refundBefore: escrow.refund_expiry.toISOString(),
  }
}

/** Formats an escrow's unmined captures and voids for its merchant, oldest first. */
export const shownCalls = (
  { token: { decimals } }: NetworkInfo,
  calls: readonly Pick<Row<"payouts">, "id" | "kind" | "amount" | "state" | "held_reason" | "held_detail">[],
) =>
  calls.flatMap(({ id, kind, amount, state, held_reason, held_detail }) =>
    (kind === "capture" || kind === "void") && ["queued", "held", "assigned"].includes(state)
      ? [
          {
            id: payoutIdOf(id),
            kind,
            amount: formatAmount(amount, decimals),
            heldFor: state === "held" ? (held_detail ?? held_reason) : null,
          },
        ]
      : [],
  )

/**
 * Returns the transaction with which a payer's wallet reclaims the rest after the authorization ended; null if
 * nothing is left.
 */
function shownReclaim(escrow: Row<"escrows">) {
  const { payer, authorized, captured, voided, reclaimed } = escrow
  if (payer === null || authorized === captured + voided + reclaimed) return null
  return {
    from: checksummed(payer),
    after: escrow.authorization_expiry.toISOString(),
    to: checksummed(escrow.escrow),
    data: reclaimCall(paymentInfoOf(escrow, payer)),
  }
}

/**
 * Returns the fields that the status answer adds for a payer. While the payer can pay, they include the data to sign:
 * `ReceiveWithAuthorization` in the token's domain.
 */
export function shownToPayer(
  { token: { decimals } }: NetworkInfo,
  { status, capture }: Pick<Row<"checkout_sessions">, "status" | "capture">,
  escrow: Row<"escrows">,
  { payable }: { payable: boolean },
) {
  const text = (amount: bigint) => formatAmount(amount, decimals)
  return {
    capture,
    captured: text(escrow.captured),
    released: text(escrow.voided + escrow.reclaimed),
    refunded: text(escrow.refunded),
    captureBefore: escrow.void_at.toISOString(),
    reclaim: shownReclaim(escrow),
    ...(payable && status === "pending"
      ? {
          authorization: {
            primaryType: "ReceiveWithAuthorization" as const,
            to: checksummed(escrow.collector),
            value: `${escrow.max_amount}`,
            validAfter: "0",
            validBefore: `${secondsOf(escrow.pre_approval_expiry)}`,
            nonce: escrow.nonce,
          },
        }
      : {}),
  }
}
