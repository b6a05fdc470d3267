/**
 * The event about a changed split. Every endpoint of the merchant gets this event, so that nobody can change recipients
 * silently with a stolen console token.
 */
import { emit } from "../../account/webhooks/emit.ts"
import type { EventData } from "../../account/webhooks/events.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { percentOf } from "../../platform/money/percent.ts"
import type { Recipient } from "./split.ts"

/** Notifies all endpoints of the merchant who is paid from now on. Call this inside the transaction that changes it. */
export async function emitSplitChanged(
  ctx: TxContext,
  merchantId: string,
  {
    recipients,
    productId = null,
    ...data
  }: Omit<EventData["settings.split_changed"], "merchantId" | "productId" | "recipients"> & {
    productId?: string | null
    recipients: readonly Recipient[]
  },
): Promise<void> {
  const shown = recipients.map(({ address, percentE4 }) => ({
    address: checksummed(address),
    percent: percentOf(percentE4),
  }))
  await emit(ctx, {
    merchantId,
    type: "settings.split_changed",
    orderKey: "settings splits",
    data: { merchantId, ...data, productId, recipients: shown },
  })
}
