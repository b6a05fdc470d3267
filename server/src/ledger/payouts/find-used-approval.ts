/**
 * Determines whether a return can never succeed. Either a transaction that this database does not know already made the
 * return, or the return's approval has expired.
 */
import { encodeFunctionData } from "viem"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import { askAny } from "../../platform/chain/endpoints.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { approvalIn } from "../../platform/chain/release-call.ts"
import { hexNumber, type RpcCall, type RpcResult } from "../../platform/chain/rpc.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { askEach } from "../txmanager/simulate-on-each.ts"

/**
 * Whether a return's approval has expired unused, so that nobody can ever make the return. A quorum must report the
 * approval's nonce as unused, at a final block after the deadline. Neither a fast clock nor a single endpoint can cause
 * this result.
 */
export async function hasEnded(ctx: Context, network: Network, payout: Row<"payouts">): Promise<boolean> {
  const approval = approvalOf(payout)
  if (!approval || approval.deadline >= seconds(ctx.now())) return false
  const quorum = await openQuorum(network, 0n, ctx.signal)
  await quorum.learn([quorum.finalized], [])
  const final = quorum.blockAt(quorum.finalized)?.block
  if (!final || approval.deadline >= seconds(final.time)) return false
  const call = await isUsedCall(ctx, payout, approval.nonce, hexNumber(final.number))
  const answers = await askEach(network, [call], ctx.signal)
  return answers.filter(results => isWord(results?.[0], 0)).length >= quorumOf(network)
}

/**
 * Returns why a return can never succeed, for the operator; undefined if the return's nonce is unused, or if no
 * endpoint can tell.
 */
export async function usedApproval(
  ctx: Context,
  network: Network,
  payout: Row<"payouts">,
): Promise<string | undefined> {
  const approval = approvalOf(payout)
  if (!approval) return undefined
  const call = await isUsedCall(ctx, payout, approval.nonce, "latest")
  const [result] = await askAny(network.endpoints, [call], ctx.signal).catch((): RpcResult[] => [])
  if (!isWord(result, 1)) return undefined
  return "the wallet's approval was already used on chain; once that is final, the hourly reconciliation ends this return"
}

const approvalOf = (row: Row<"payouts">) => (kindOf(row).hasApproval ? approvalIn(row.data) : undefined)

async function isUsedCall(ctx: Context, payout: Row<"payouts">, nonce: Hash, block: string): Promise<RpcCall> {
  const { address } = await ctx.db
    .selectFrom("deposits")
    .select("address")
    .where("id", "=", payout.deposit_id)
    .executeTakeFirstOrThrow()
  const data = encodeFunctionData({ abi: depositFactoryAbi, functionName: "isUsed", args: [address, nonce] })
  return { method: "eth_call", params: [{ to: payout.to_address, data }, block] }
}

const isWord = (result: RpcResult | undefined, value: 0 | 1): boolean =>
  result?.ok === true && typeof result.value === "string" && new RegExp(`^0x0*${value}$`).test(result.value)

const seconds = (time: Date): bigint => BigInt(Math.floor(time.getTime() / 1_000))
