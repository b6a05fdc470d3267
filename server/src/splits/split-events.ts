/** The event of who is paid, which every endpoint of the merchant gets: a stolen console token can't change it in silence. */
import { checksummed } from "../chain/hex.ts"
import type { Context } from "../context.ts"
import { emit } from "../webhooks/emit.ts"
import type { EventData } from "../webhooks/events.ts"
import { percentOf, type Recipient } from "./split.ts"

/** Tells every endpoint of the merchant who is paid from now on; call it inside the transaction that changes it. */
export async function emitSplitChanged(
  ctx: Context,
  merchantId: string,
  {
    recipients,
    ...data
  }: Omit<EventData["settings.split_changed"], "merchantId" | "recipients"> & { recipients: readonly Recipient[] },
): Promise<void> {
  const shown = recipients.map(({ address, percentE4 }) => ({
    address: checksummed(address),
    percent: percentOf(percentE4),
  }))
  await emit(ctx, {
    merchantId,
    type: "settings.split_changed",
    orderKey: "settings splits",
    data: { merchantId, ...data, recipients: shown },
  })
}
