/** Determines which changes of a merchant's settings its payout wallet must approve. */
import { isLocked, type ProtectedChange } from "../../account/identity/check-wallet-lock.ts"
import { payoutAddresses } from "../../account/identity/read-payout-addresses.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { approverNow, readTargets, type SettingsChange } from "./change-settings.ts"

/**
 * The part of a change, in words, that the payout wallet must approve under the wallet lock; undefined if there is
 * none. Throws `VALIDATION_ERROR` for an unacceptable address. Switching the lock on or off always needs the
 * signature: a lock whose wallet can't sign, such as an exchange's, would stay on forever. Switching it on needs the
 * signature of every payout address.
 */
export async function protectedPart(
  ctx: TxContext,
  merchantId: string,
  change: SettingsChange,
): Promise<ProtectedChange | undefined> {
  const targets = await readTargets(ctx, change.payoutAddresses)
  const present = await payoutAddresses(ctx, merchantId)
  const locked = await isLocked(ctx, merchantId)
  const moved = targets.flatMap(({ network, address }) => {
    const before = present.find(row => row.chain_id === network.chainId)
    if (before?.address === address && !before.pending_address) return []
    const words = (text: string) => `payout address on ${network.name}: ${text}`
    return [{ from: words(before ? checksummed(before.address) : "none"), to: words(checksummed(address)) }]
  })
  const switched = change.walletLock !== undefined && change.walletLock !== locked
  const lock = (on: boolean) => `wallet lock: ${on ? "on" : "off"}`
  const approver = await approverNow(ctx, merchantId)
  const approved =
    change.approver !== undefined && change.approver !== approver
      ? [{ from: `returns approved by the ${approver}`, to: `returns approved by the ${change.approver}` }]
      : []
  const parts = [...moved, ...approved, ...(switched ? [{ from: lock(locked), to: lock(!locked) }] : [])]
  if (parts.length === 0) return undefined
  const joined = (side: "from" | "to") => parts.map(part => part[side]).join("; ")
  const words = { action: "Change settings", subject: "settings", from: joined("from"), to: joined("to") }
  return { words, always: switched, byAll: switched && !locked }
}
