/** What merchants are sent about a session with an escrow, in the words of `settlement/notify-checkout.ts`. */
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { noticeOf, notifyCheckout } from "../settlement/notify-checkout.ts"
import type { Escrowed } from "./load-escrow.ts"

/** An escrow and its session, before and after a change. */
export interface Change {
  before: Escrowed
  after: Escrowed
}

/** Emits what a change of an escrow means to its merchant; call it in the transaction that writes the change. */
export async function notifyEscrow(ctx: TxContext, { before, after }: Change): Promise<void> {
  const { session, escrow } = after
  const network = networkOf(ctx.chain, session.chain_id)
  const isUnreserved = before.escrow.authorized > 0n && escrow.authorized === 0n
  const notify = (change: Parameters<typeof notifyCheckout>[2], row: Row<"checkout_sessions"> = session) =>
    notifyCheckout(ctx, network, change, {
      ...noticeOf(session),
      ...{ status: session.status, exception: session.exception, amountReceived: session.received, splits: null },
      ...{ confirmedAt: session.confirmed_at, txHash: row.tx_hash, payer: row.payer },
      ...(escrow.auth_id === null ? {} : { reserved: reservedOf(escrow, escrow.auth_id) }),
      isUnreserved,
    })
  if (before.escrow.authorized === 0n && escrow.authorized > 0n) await notify("authorized")
  // Whoever is asked twice answers once: the session's row notes what its merchant was sent last.
  if (escrow.captured > 0n) await notify("paid")
  // What was taken back is named by the transaction that had paid it.
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
