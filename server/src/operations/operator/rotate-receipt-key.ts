/** Replaces the key that signs a network's receipts. */

import { makeReceiptKey, receiptKeys } from "../../ledger/receipts/use-receipt-keys.ts"
import { isRegistered } from "../../ledger/receipts/write-anchors.ts"
import type { Context } from "../../platform/context.ts"
import { refused } from "./find-wallet.ts"
import { byHand, type OperatorOrder } from "./log-actions.ts"

/**
 * Makes a new key. The previous key signs until the new one is registered on the chain. The previous key is revoked
 * there once everything that it signed is written. Refused while another new key is not registered yet.
 */
export async function rotateReceiptKey(
  ctx: Context,
  asked: OperatorOrder & { network?: string | undefined; reason: string },
): Promise<{ said: string }> {
  const { networks } = ctx.chain
  const [network, ...others] = networks.filter(({ name }) => asked.network === undefined || name === asked.network)
  if (!network) throw refused(`The service does not serve the network ${asked.network}.`)
  if (others.length > 0) throw refused(`Name one with --network: ${networks.map(({ name }) => name).join(", ")}.`)
  const { key, before } = await byHand(ctx, asked, async ctx => {
    const [newest] = await receiptKeys(ctx, network)
    if (newest && !(await isRegistered(ctx, newest)))
      throw refused(`The key ${newest.id} is not registered on the chain yet. Try again when it is.`)
    const { id: key } = await makeReceiptKey(ctx, network)
    const before = { key: newest?.id ?? null }
    return { action: "rotate receipt key" as const, chainId: network.chainId, before, after: { key }, key }
  })
  const isWritten = ctx.settings.receipts.anchorMs !== undefined
  return {
    said: isWritten
      ? `The key ${key} signs the receipts of ${network.name} once it is registered on the chain. ${before.key === null ? "Until then, receipts wait." : `Until then, the key ${before.key} signs them.`} The old key is revoked when everything that it signed is written to the chain.`
      : `The key ${key} signs the receipts of ${network.name} from now on.`,
  }
}
