/** What answers say of an escrow: to its merchant, and to its payer. Pure. */
import { type Address, checksummed } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { Row } from "../db/schema.ts"
import { formatAmount } from "../money/amount.ts"
import { secondsOf } from "./payment-info.ts"

/** The statuses in which a payer has done his part. */
export const paidStatuses: readonly Row<"checkout_sessions">["status"][] = [
  "authorized",
  "confirmed",
  "partially_refunded",
  "refunded",
]

/** The escrow of a session as its merchant sees it; amounts are decimal text. */
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

/** What the status answer adds for a payer, and while he may pay, what he signs: `ReceiveWithAuthorization` in the domain of the token. */
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
