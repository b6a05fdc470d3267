/** Watches the receiving addresses that an unknown transaction moved money out of. */
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { depositsAmong } from "../../ledger/scanner/queries.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { Context } from "../../platform/context.ts"

/**
 * Puts the addresses that a transaction emptied back into the scan, which finds what had come there. In a restored
 * database they may rest, or be put away, and a balance of zero says nothing of what came and went since the backup.
 */
export async function watchSenders(ctx: Context, network: Network, { transfers }: Receipt): Promise<void> {
  const senders = transfers.flatMap(({ token, from }) => (token === network.token.address ? [from] : []))
  const deposits = await depositsAmong(ctx, network.chainId, senders, [])
  if (deposits.length === 0) return
  await watch(ctx, ...deposits.map(({ resource }) => resource))
  await ctx.wakes.wake("verify")
}
