/** Whether a payer took its money back, after the authorization ended: a fact of the chain alone, as no call of ours says so. */
import { paymentStateCall, readPaymentState } from "../chain/escrow.ts"
import { networkOf } from "../chain/networks.ts"
import { hexNumber, type RpcResult } from "../chain/rpc.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { askEach } from "../payouts/trials.ts"

/** What of an escrow is held by what its row says, in base units. */
const heldBy = ({ authorized, captured, voided, reclaimed }: Row<"escrows">): bigint =>
  authorized - captured - voided - reclaimed

/**
 * Whether a final block holds nothing of an escrow whose authorization has ended, though its row says otherwise. A quorum of
 * endpoints must say so; what they can't answer is no.
 */
export async function isEmptied(ctx: Context, escrow: Row<"escrows">): Promise<boolean> {
  const { auth_id: authId, chain_id: chainId, authorization_expiry: expiry } = escrow
  if (authId === null || heldBy(escrow) === 0n || ctx.now() < expiry) return false
  const network = networkOf(ctx.chain, chainId)
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("finalized_number")
    .where("chain_id", "=", chainId)
    .executeTakeFirst()
  if (!cursor) return false
  const call = { to: escrow.escrow, data: paymentStateCall(authId) }
  const params = [call, hexNumber(cursor.finalized_number)]
  const answers = await askEach(network, [{ method: "eth_call", params }], ctx.signal)
  const empty = answers.filter(results => isEmpty(results?.[0]))
  const held = answers.filter(results => results?.[0]?.ok && !isEmpty(results[0]))
  return empty.length >= quorumOf(network) && held.length < empty.length
}

/** Collected once, and nothing left. Before it was collected, an older block says so too, of another kind of nothing. */
function isEmpty(result: RpcResult | undefined): boolean {
  if (!result?.ok) return false
  try {
    const { hasCollectedPayment, capturableAmount } = readPaymentState(result.value as `0x${string}`)
    return hasCollectedPayment && capturableAmount === 0n
  } catch {
    return false
  }
}
