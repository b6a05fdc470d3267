/**
 * Finds payers who reclaimed their money after the authorization ended. Only the chain shows this, because a reclaim
 * is not one of our calls.
 */
import { askEach } from "../../ledger/txmanager/simulate-on-each.ts"
import { paymentStateCall, readPaymentState } from "../../platform/chain/escrow.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { hexNumber, type RpcResult } from "../../platform/chain/rpc.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"

/** Returns the amount that an escrow still holds according to its row, in base units. */
const heldBy = ({ authorized, captured, voided, reclaimed }: Row<"escrows">): bigint =>
  authorized - captured - voided - reclaimed

/** How many payments one request to an endpoint covers. */
const ESCROWS_PER_REQUEST = 100

/**
 * Returns the sessions of those escrows that are empty in a final block after the authorization ended, although their
 * rows still show money. A quorum of endpoints must agree; an unreadable answer counts as a no. All escrows of a
 * network share requests, because after a change of relay wallet, thousands may wait for their payers.
 */
export async function emptiedOf(ctx: Context, escrows: readonly Row<"escrows">[]): Promise<Set<string>> {
  const over = escrows.filter(
    each => each.auth_id !== null && heldBy(each) > 0n && ctx.now() >= each.authorization_expiry,
  )
  const networks = [...Map.groupBy(over, each => each.chain_id)]
  const found = await Promise.all(networks.map(([chainId, of]) => emptiedOn(ctx, chainId, of)))
  return new Set(found.flat())
}

async function emptiedOn(ctx: Context, chainId: number, escrows: readonly Row<"escrows">[]): Promise<string[]> {
  const network = networkOf(ctx.chain, chainId)
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("finalized_number")
    .where("chain_id", "=", chainId)
    .executeTakeFirst()
  if (!cursor) return []
  const block = hexNumber(cursor.finalized_number)
  const emptied: string[] = []
  for (let start = 0; start < escrows.length; start += ESCROWS_PER_REQUEST) {
    const part = escrows.slice(start, start + ESCROWS_PER_REQUEST)
    const calls = part.map(({ escrow: to, auth_id: authId }) => ({
      method: "eth_call",
      params: [{ to, data: paymentStateCall(authId as Hash) }, block],
    }))
    const answers = await askEach(network, calls, ctx.signal)
    for (const [i, escrow] of part.entries()) {
      const results = answers.map(each => each?.[i])
      const taken = results.filter(result => isTaken(escrow, result))
      const others = results.filter(result => result?.ok && !isTaken(escrow, result))
      if (taken.length >= quorumOf(network) && others.length < taken.length) emptied.push(escrow.session_id)
    }
  }
  return emptied
}

/**
 * Whether a payment was collected and nothing is left. An escrow is also empty before the collection, so an older
 * block proves nothing. If more can be refunded than the row shows, someone else who holds the relay wallet's key
 * captured the payment, and the payer got nothing.
 */
function isTaken({ captured, refunded }: Row<"escrows">, result: RpcResult | undefined): boolean {
  if (!result?.ok) return false
  try {
    const state = readPaymentState(result.value as `0x${string}`)
    return state.hasCollectedPayment && state.capturableAmount === 0n && state.refundableAmount === captured - refunded
  } catch {
    return false
  }
}
