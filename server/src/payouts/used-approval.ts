/** Whether a return can never be carried out: it was already, by a transaction that this database does not know, or its approval has ended. */
import { encodeFunctionData } from "viem"
import { depositFactoryAbi } from "../chain/abi.ts"
import { askAny } from "../chain/endpoints.ts"
import type { Network } from "../chain/networks.ts"
import { approvalIn } from "../chain/release-call.ts"
import type { RpcResult } from "../chain/rpc.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"

/** Whether a wallet's approval of a return has ended, so that nobody can carry it out any more. */
export function hasEnded(ctx: Context, { kind, data }: Row<"payouts">): boolean {
  const approval = kind === "return" ? approvalIn(data) : undefined
  return approval !== undefined && approval.deadline < BigInt(Math.floor(ctx.now().getTime() / 1_000))
}

/** Why a return can never succeed, for the operator; undefined where its nonce is unused, or nobody can say. */
export async function usedApproval(
  ctx: Context,
  network: Network,
  payout: Row<"payouts">,
): Promise<string | undefined> {
  const approval = payout.kind === "return" ? approvalIn(payout.data) : undefined
  if (!approval) return undefined
  const { address } = await ctx.db
    .selectFrom("deposits")
    .select("address")
    .where("id", "=", payout.deposit_id)
    .executeTakeFirstOrThrow()
  const data = encodeFunctionData({
    abi: depositFactoryAbi,
    functionName: "isUsed",
    args: [address, approval.nonce],
  })
  const call = { method: "eth_call", params: [{ to: payout.to_address, data }, "latest"] }
  const [result] = await askAny(network.endpoints, [call], ctx.signal).catch((): RpcResult[] => [])
  if (!result?.ok || typeof result.value !== "string" || !/^0x0*1$/.test(result.value)) return undefined
  return "this return was already carried out; look for GivenBack of the deposit in the books, and cancel this one"
}
