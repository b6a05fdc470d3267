/** Watches the receiving addresses from which an unknown transaction moved money. */
import { watch } from "../../ledger/deposits/make-deposits.ts"
import { depositsAmong } from "../../ledger/scanner/queries.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { Context } from "../../platform/context.ts"

/**
 * Puts the addresses that a transaction emptied back into the scan, which finds the earlier transfers to them. In a
 * restored database, these addresses may have left the scan or be put away. A balance of zero says nothing about
 * transfers since the backup.
 */
export async function watchSenders(ctx: Context, network: Network, { transfers }: Receipt): Promise<void> {
  const senders = transfers.flatMap(({ token, from }) => (token === network.token.address ? [from] : []))
  const deposits = await depositsAmong(ctx, network.chainId, senders, [])
  if (deposits.length === 0) return
  await watch(ctx, ...deposits.map(({ resource }) => resource))
  await ctx.wakes.wake("verify")
}
