/**
 * Checks that the money of an open payment is still at its receiving address: the merchant may have given it back a
 * moment ago.
 */
import { encodeFunctionData, erc20Abi } from "viem"
import { networkOf } from "../chain/networks.ts"
import type { RpcResult } from "../chain/rpc.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { depositSums } from "../deposits/balance.ts"
import { ApiError } from "../errors.ts"
import { askEach } from "../payouts/trials.ts"
import { returnable } from "./surplus.ts"

const LEFT =
  "Money has left this payment's receiving address that no payout accounts for. If your wallet has just sent the payment back, there is nothing to do: it ends as returned within the hour. If not, a payout may be on its way: try again in a minute."

/**
 * Throws `INVALID_OPERATION` if a wallet can send a payment back without the service and the address holds less than
 * its rows say, so that a decision would spend money of another buyer; `CHAIN_UNAVAILABLE` if too few endpoints report
 * what it holds. The comparison with the chain finds what was given back up to an hour later, and only once final; this
 * reads the newest block. Call it outside of any transaction. Tokens other than the settlement token are not checked:
 * their balances may change without a transfer.
 */
export async function assertMoneyThere(ctx: Context, payment: Row<"payments">): Promise<void> {
  const { deposit_id: depositId, token } = await returnable(ctx, payment)
  const network = networkOf(ctx.chain, payment.chain_id)
  const isDecided = payment.status !== "open" && payment.status !== "granted"
  if (isDecided || depositId === null || token !== network.token.address) return
  const deposits = ctx.db.selectFrom("deposits").selectAll().where("id", "=", depositId)
  const { address, approver, factory, older_factory: isOlder } = await deposits.executeTakeFirstOrThrow()
  if (approver === factory || isOlder) return
  // Read before the balance: money that arrives in between can only make the balance larger.
  const sums = (await depositSums(ctx, token, [depositId])).get(depositId)
  const least = sums ? sums.came - sums.went : 0n
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [address] })
  const call = { method: "eth_call", params: [{ to: token, data }, "latest"] }
  const answers = await askEach(network, [call], ctx.signal)
  const balances = answers.flatMap(results => wordOf(results?.[0]) ?? [])
  const needed = quorumOf(network)
  if (balances.filter(balance => balance >= least).length >= needed) return
  if (balances.filter(balance => balance < least).length >= needed)
    throw new ApiError("INVALID_OPERATION", undefined, LEFT)
  throw new ApiError(
    "CHAIN_UNAVAILABLE",
    undefined,
    "The network's endpoints do not say, or do not agree on, what this payment's receiving address holds. Try again in a moment.",
  )
}

const wordOf = (result: RpcResult | undefined): bigint | undefined =>
  result?.ok && typeof result.value === "string" && /^0x[0-9a-f]{64}$/i.test(result.value)
    ? BigInt(result.value)
    : undefined
