/** Notifies merchants of changes to a session with an escrow, through `settlement/notify-checkout.ts`. */
import { noticeOf } from "../../ledger/settlement/checkout-notice.ts"
import { notifyCheckout } from "../../ledger/settlement/notify-checkout.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import type { Escrowed } from "./load-escrow.ts"

/** An escrow and its session, before and after a change. */
export interface Change {
  before: Escrowed
  after: Escrowed
}

/** Emits the events for an escrow's change. Must be called in the transaction that writes the change. */
export async function notifyEscrow(ctx: TxContext, { before, after }: Change): Promise<void> {
  const { session, escrow } = after
  const network = networkOf(ctx.chain, session.chain_id)
  const isUnreserved = before.escrow.authorized > 0n && escrow.authorized === 0n
  const notify = (change: Parameters<typeof notifyCheckout>[2], row: Row<"checkout_sessions"> = session) =>
    notifyCheckout(ctx, network, change, {
      ...noticeOf(session),
      status: session.status,
      exception: session.exception,
      amountReceived: session.received,
      splits: null,
      confirmedAt: session.confirmed_at,
      txHash: row.tx_hash,
      payer: row.payer,
      ...(escrow.auth_id === null ? {} : { reserved: reservedOf(escrow, escrow.auth_id) }),
      isUnreserved,
    })
  if (before.escrow.authorized === 0n && escrow.authorized > 0n) await notify("authorized")
  // Emitting again is a no-op, because the session's row records the last notification to its merchant.
  if (escrow.captured > 0n) await notify("paid")
  // A reversal names the transaction that had paid the session.
  else if (before.session.notified_paid) await notify("reversed", before.session)
  else if (isUnreserved) await notify("unreserved", before.session)
  else if (before.session.status === "voided" && session.status === "authorized") await notify("unvoided")
  const { status } = session
  if (status === before.session.status) return
  if (status === "voided" || status === "failed" || status === "expired") await notify(status)
}

const reservedOf = ({ authorized, captured, voided, reclaimed, void_at }: Row<"escrows">, authId: string) => ({
  authId,
  authorized,
  captured,
  released: voided + reclaimed,
  captureBefore: void_at,
})
