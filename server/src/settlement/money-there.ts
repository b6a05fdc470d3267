/**
 * Checks that the money of an open payment is still at its receiving address: the merchant may have given it back a
 * moment ago.
 */
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi } from "viem"
import type { Address } from "../chain/hex.ts"
import { type Network, networkOf } from "../chain/networks.ts"
import type { RpcResult } from "../chain/rpc.ts"
import { quorumOf } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { depositSums } from "../deposits/balance.ts"
import { ApiError } from "../errors.ts"
import { askEach } from "../payouts/trials.ts"
import { returnable } from "./surplus.ts"

const LEFT =
  "Money has left this payment's receiving address that no payout accounts for. If your wallet has just sent the payment back, there is nothing to do: it ends as returned within the hour. If not, a payout may be on its way: try again in a minute."

/**
 * Throws `INVALID_OPERATION` if a wallet can send a payment back without the service and the address holds less than
 * its rows say, so that a decision would spend money of another buyer; `CHAIN_UNAVAILABLE` if too few endpoints report
 * what it holds. Call it outside of any transaction.
 */
export async function assertMoneyThere(ctx: Context, payment: Row<"payments">): Promise<void> {
  const { deposit_id: depositId, token } = await returnable(ctx, payment)
  const network = networkOf(ctx.chain, payment.chain_id)
  const isDecided = payment.status !== "open" && payment.status !== "granted"
  if (isDecided || depositId === null || token !== network.token.address) return
  const deposits = ctx.db.selectFrom("deposits").selectAll().where("id", "=", depositId)
  const deposit = await deposits.executeTakeFirstOrThrow()
  const there = isGivenBackByWallet(deposit) ? await moneyAt(ctx, network, deposit) : "all"
  if (there === "less") throw new ApiError("INVALID_OPERATION", undefined, LEFT)
  if (there === "unknown")
    throw new ApiError(
      "CHAIN_UNAVAILABLE",
      undefined,
      "The network's endpoints do not say, or do not agree on, what this payment's receiving address holds. Try again in a moment.",
    )
}

/**
 * Returns the payers, by resource, whose open payment must not be granted now though they sent what was missing: a wallet
 * can send it back without the service, and its address holds less than its rows say, or too few endpoints report what
 * it holds. Otherwise 4.99 that was given back and 0.01 would buy what costs 5. Call it outside of any transaction.
 */
export async function payersToWait(
  ctx: Context,
  network: Network,
  groups: readonly { resourceId: string; senders: readonly Address[] }[],
): Promise<Map<string, Set<Address>>> {
  const resources = groups.map(({ resourceId }) => resourceId)
  const payers = [...new Set(groups.flatMap(({ senders }) => senders))]
  const { rows } = await sql<Row<"deposits"> & { payers: Address[] }>`
    select d.*, p.payers from deposits d join (select deposit_id, array_agg(distinct payer::text) as payers from payments
        where resource_id = any(${sqlArray("text", resources)}) and status = 'open' and token = ${network.token.address}
          and payer = any(${sqlArray("text", payers)}) group by 1) p on p.deposit_id = d.id
      where d.approver <> d.factory and not d.older_factory`.execute(ctx.db)
  const waiting = new Map<string, Set<Address>>()
  for (const deposit of rows) {
    if ((await moneyAt(ctx, network, deposit)) === "all") continue
    const known = waiting.get(deposit.resource_id) ?? new Set()
    waiting.set(deposit.resource_id, new Set([...known, ...deposit.payers]))
    ctx.log.info({ resourceId: deposit.resource_id }, "a payment waits: money may have left its receiving address")
  }
  return waiting
}

const isGivenBackByWallet = ({ approver, factory, older_factory: isOlder }: Row<"deposits">): boolean =>
  approver !== factory && !isOlder

/**
 * Whether a receiving address holds at least what its rows say, in the settlement token. The comparison with the chain finds
 * what was given back up to an hour later, and only once final; this reads the newest block. Other tokens' balances may
 * change without a transfer.
 */
async function moneyAt(
  ctx: Context,
  network: Network,
  { id, address }: Pick<Row<"deposits">, "id" | "address">,
): Promise<"all" | "less" | "unknown"> {
  const token = network.token.address
  // Read before the balance: money that arrives in between can only make the balance larger.
  const sums = (await depositSums(ctx, token, [id])).get(id)
  const least = sums ? sums.came - sums.went : 0n
  const data = encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [address] })
  const call = { method: "eth_call", params: [{ to: token, data }, "latest"] }
  const answers = await askEach(network, [call], ctx.signal)
  const balances = answers.flatMap(results => wordOf(results?.[0]) ?? [])
  const needed = quorumOf(network)
  if (balances.filter(balance => balance >= least).length >= needed) return "all"
  return balances.filter(balance => balance < least).length >= needed ? "less" : "unknown"
}

const wordOf = (result: RpcResult | undefined): bigint | undefined =>
  result?.ok && typeof result.value === "string" && /^0x[0-9a-f]{64}$/i.test(result.value)
    ? BigInt(result.value)
    : undefined
