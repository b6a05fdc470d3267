/**
 * Whether an approver agreed to what left a deposit: anyone may submit the signature of a merchant's wallet, so a merchant can
 * send its own money back without the service. The factory says so in the same transaction.
 */
import { type Hex, parseEventLogs, type RpcLog } from "viem"
import { depositFactoryAbi } from "../chain/abi.ts"
import { ask, type Endpoint } from "../chain/endpoints.ts"
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { receiptCall, type Transfer } from "../chain/transfers.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"

/**
 * Whether a quorum of endpoints reports the factory's word for this transfer. Where the factory itself is the approver, its
 * operator sent the transfer, and no other party agreed to it.
 */
export async function isGivenBack(
  ctx: Context,
  network: Network,
  { factory, approver }: { factory: Address; approver: Address },
  transfer: Transfer,
): Promise<boolean> {
  if (approver === factory) return false
  const answers = await Promise.all(network.endpoints.map(endpoint => saysSo(ctx, endpoint, factory, transfer)))
  return answers.filter(Boolean).length >= quorumOf(network)
}

async function saysSo(ctx: Context, endpoint: Endpoint, factory: Address, transfer: Transfer): Promise<boolean> {
  const [result] = (await ask(endpoint, [receiptCall(transfer.txHash)], ctx.signal)) ?? []
  const receipt = result?.ok ? (result.value as { blockHash?: unknown; logs?: unknown } | null) : null
  if (!receipt || receipt.blockHash !== transfer.blockHash || !Array.isArray(receipt.logs)) return false
  const logs = receipt.logs.filter(log => String(log?.address).toLowerCase() === factory)
  try {
    return parseEventLogs({ abi: depositFactoryAbi, eventName: "GivenBack", logs: logs as RpcLog[] }).some(
      ({ args }) =>
        lower(args.deposit) === transfer.from &&
        lower(args.token) === transfer.token &&
        lower(args.to) === transfer.to &&
        args.amount === transfer.value,
    )
  } catch {
    return false
  }
}

const lower = (address: Hex): string => address.toLowerCase()
