/** Which payers took their money back, after the authorization ended: a fact of the chain alone, as no call of ours says so. */
import { paymentStateCall, readPaymentState } from "../chain/escrow.ts"
import type { Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import { hexNumber, type RpcResult } from "../chain/rpc.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { askEach } from "../payouts/trials.ts"

/** What of an escrow is held by what its row says, in base units. */
const heldBy = ({ authorized, captured, voided, reclaimed }: Row<"escrows">): bigint =>
  authorized - captured - voided - reclaimed

/** Payments that one request asks about. */
const ESCROWS_A_REQUEST = 100

/**
 * Of these escrows, those of which a final block holds nothing though their authorization has ended and their rows say otherwise, by their
 * sessions. A quorum of endpoints must say so; what they can't answer is no. All of a network are asked about together: where the
 * relay wallet was changed, thousands may wait for their payers.
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
  for (let start = 0; start < escrows.length; start += ESCROWS_A_REQUEST) {
    const part = escrows.slice(start, start + ESCROWS_A_REQUEST)
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
 * Collected once, and nothing left. Before it was collected, an older block says so too, of another kind of nothing. A capture leaves
 * more to refund than the row knows: with the key of the relay wallet somebody else sent that, and the payer has nothing.
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
