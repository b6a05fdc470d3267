/** The content of events about a checkout, or about a payment at a paywall. */
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { PaymentException } from "../../platform/db/columns.ts"
import type { Row, SessionStatus } from "../../platform/db/schema.ts"
import type { Share } from "../payouts/share.ts"
import type { ZeroG } from "../receipts/zerog/read-place.ts"
import type { NumberedTable } from "./number-events.ts"

/** A session, or a payment at a paywall, which events report like a session. */
export interface CheckoutNotice {
  /** The id of the session, or of the payment that is reported like a session. */
  id: string
  /** The table whose row numbers the notice's events. */
  numberedIn: NumberedTable
  merchantId: string
  amount: bigint
  amountReceived: bigint
  status: SessionStatus
  exception: PaymentException | null
  txHash: Hash | null
  payer: Address | null
  confirmedAt: Date | null
  productId: string | null
  paywallId: string | null
  description: string | null
  metadata: Record<string, unknown> | null
  customerEmail: string | null
  payerInfo: Record<string, string> | null
  /** An entry for each share; null without a split. */
  splits: Share[] | null
  /** Where the payment's receipt is in 0G's storage. Undefined if it is not stored there, or not yet. */
  zeroG?: ZeroG | undefined
  callbackUrl: string | null
  traceparent: string | null
  /** The token of the amounts, if it is not the settlement token. */
  token?: Address
  /** Whether a reorg removed the reservation too. */
  isUnreserved?: boolean
  /** The refund that a reorg removed. */
  refundId?: string
  /** Set only for a session with an escrow, once a payer has signed. Amounts are in base units. */
  reserved?: { authId: string; authorized: bigint; captured: bigint; released: bigint; captureBefore: Date }
}

/** Returns the fields that every event about a session has, except its status. */
export const noticeOf = (session: Row<"checkout_sessions">) => ({
  id: session.id,
  numberedIn: "checkout_sessions" as const,
  merchantId: session.merchant_id,
  amount: session.amount,
  productId: session.product_id,
  paywallId: null,
  description: session.description,
  metadata: session.metadata,
  customerEmail: session.customer_email,
  payerInfo: session.payer_info,
  callbackUrl: session.callback_url,
  traceparent: session.traceparent,
})
