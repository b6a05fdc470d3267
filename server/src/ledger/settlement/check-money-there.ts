/**
 * Checks that the money of an open payment is still at its receiving address. The merchant may have just given the
 * money back.
 */
import { sql } from "kysely"
import { encodeFunctionData, erc20Abi } from "viem"
import { hostOf } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { multicall, readMulticall } from "../../platform/chain/multicall.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { RpcResult } from "../../platform/chain/rpc.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import { depositSums } from "../deposits/sum-deposits.ts"
import { askUntil } from "../txmanager/simulate-on-each.ts"
import { returnable } from "./hold-surplus.ts"

const LEFT =
  "Money has left this payment's receiving address without a known payout. If your wallet has just sent the payment back, there is nothing to do: the payment becomes returned within the hour. If not, a payout may be in progress: try again in a minute."

/**
 * Throws `INVALID_OPERATION` if a wallet can send a payment back without the service, and the address holds less than
 * recorded. A decision would then spend another buyer's money. Throws `CHAIN_UNAVAILABLE` if too few endpoints report
 * the balance. Call this outside any transaction.
 */
export async function assertMoneyThere(ctx: Context, payment: Row<"payments">): Promise<void> {
  const { deposit_id: depositId, token } = await returnable(ctx, payment)
  const network = networkOf(ctx.chain, payment.chain_id)
  const isDecided = payment.status !== "open" && payment.status !== "granted"
  if (isDecided || depositId === null || token !== network.token.address) return
  const deposits = ctx.db.selectFrom("deposits").selectAll().where("id", "=", depositId)
  const deposit = await deposits.executeTakeFirstOrThrow()
  if (!isGivenBackByWallet(deposit)) return
  const there = (await moneyAt(ctx, network, [deposit])).get(deposit.id)
  if (there === "less") throw new ApiError("INVALID_OPERATION", undefined, LEFT)
  if (there !== "all")
    throw new ApiError(
      "CHAIN_UNAVAILABLE",
      undefined,
      "The network's endpoints do not report, or do not agree on, what this payment's receiving address holds. Try again in a moment.",
    )
}

/**
 * Returns the payers, by resource, whose open payment must wait although they sent the missing money. A wallet can send
 * that payment back without the service, and the payment's address may hold less than recorded. Otherwise a buyer could
 * get 4.99 back, send 0.01, and receive goods for 5. Anyone can make thousands of addresses due, so one request covers
 * all of them. Call this outside any transaction.
 */
export async function payersToWait(
  ctx: Context,
  network: Network,
  groups: readonly { resourceId: string; senders: readonly Address[] }[],
): Promise<Map<string, Set<Address>>> {
  const resources = groups.map(({ resourceId }) => resourceId)
  const payers = new Set(groups.flatMap(({ senders }) => senders))
  const { rows } = await sql<CheckedDeposit>`
    select d.*, p.payers, (select max(greatest(created_at, reorged_at)) from transfers where deposit_id = d.id and run_at <= ${ctx.now()}) as since
      from deposits d join (select deposit_id, array_agg(distinct payer::text) as payers from payments
        where resource_id = any(${sqlArray("text", resources)}) and status = 'open' and token = ${network.token.address}
          and payer = any(${sqlArray("text", payers)}) group by 1) p on p.deposit_id = d.id
      where d.approver <> d.factory and not d.older_factory order by d.id`.execute(ctx.db)
  const money = await moneyAt(ctx, network, rows)
  const waiting = new Map<string, Set<Address>>()
  for (const { id, resource_id: resourceId, payers } of rows) {
    if (money.get(id) === "all") continue
    const known = waiting.get(resourceId) ?? new Set()
    waiting.set(resourceId, known)
    for (const payer of payers) known.add(payer)
  }
  report(ctx, network, rows, money)
  return waiting
}

/** A receiving address to check, the payers who wait there, and when its newest due money arrived. */
type CheckedDeposit = Row<"deposits"> & { payers: Address[]; since: Date | null }

/**
 * How long after money arrived a balance may stay unknown before this is logged as an error. An endpoint that lags some
 * blocks reports too little only for a moment.
 */
const LASTING_MS = 60_000

/** Logs that payments wait. Each payment waits separately and is retried at growing intervals. */
function report(
  ctx: Context,
  network: Network,
  asked: readonly CheckedDeposit[],
  money: ReadonlyMap<bigint, Money>,
): void {
  const facts = { network: network.name, endpoints: network.endpoints.map(hostOf) }
  const less = asked.filter(({ id }) => money.get(id) === "less")
  if (less.length > 0)
    ctx.log.info({ ...facts, addresses: less.length }, "payments wait: money may have left their receiving addresses")
  const unknown = asked.filter(({ id }) => money.get(id) === "unknown")
  if (unknown.length === 0) return
  const isLasting = unknown.some(({ since }) => since && ctx.now().getTime() - since.getTime() > LASTING_MS)
  const words = "payments wait: too few endpoints say in time what their receiving addresses hold"
  ctx.log[isLasting ? "error" : "warn"]({ ...facts, addresses: unknown.length }, words)
}

const isGivenBackByWallet = ({ approver, factory, older_factory: isOlder }: Row<"deposits">): boolean =>
  approver !== factory && !isOlder

type Money = "all" | "less" | "unknown"

/**
 * Addresses per call. A node limits a call's gas, and reading the balance of a proxied token takes about 30,000 gas.
 */
const READS_PER_CALL = 500
/** How long endpoints have to answer. Without a quorum, all payments that are settled together wait this long. */
const MAX_MS = 3_000

/**
 * Returns whether each receiving address holds at least the recorded amount of the settlement token. The balances are
 * those at the newest block. The comparison with the chain finds money that was given back only once it is final, up to
 * an hour later. Other tokens are not checked, because their balances may change without a transfer.
 */
async function moneyAt(
  ctx: Context,
  network: Network,
  deposits: readonly Pick<Row<"deposits">, "id" | "address">[],
): Promise<Map<bigint, Money>> {
  if (deposits.length === 0) return new Map()
  const token = network.token.address
  // The rows are read before the balances, because money that arrives in between can only increase a balance.
  const sums = await depositSums(
    ctx,
    token,
    deposits.map(({ id }) => id),
  )
  const reads = deposits.map(({ address }) => ({
    to: token,
    data: encodeFunctionData({ abi: erc20Abi, functionName: "balanceOf", args: [address] }),
  }))
  const calls = Array.from({ length: Math.ceil(reads.length / READS_PER_CALL) }, (_, i) =>
    multicall(reads.slice(i * READS_PER_CALL, (i + 1) * READS_PER_CALL)),
  )
  const askedIn = (call: number) => Math.min(READS_PER_CALL, reads.length - call * READS_PER_CALL)
  const read = (results: readonly RpcResult[]) => results.flatMap((result, i) => wordsOf(result, askedIn(i)))
  const judge = (said: readonly (bigint | undefined)[][]): Map<bigint, Money> =>
    new Map(
      deposits.map(({ id }, i) => {
        const { came = 0n, went = 0n } = sums.get(id) ?? {}
        const balances = said.flatMap(words => words[i] ?? [])
        return [id, moneyBy(balances, came - went, quorumOf(network))]
      }),
    )
  const isEnough = (said: readonly (bigint | undefined)[][]) => ![...judge(said).values()].includes("unknown")
  return judge(await askUntil(network, calls, { signal: ctx.signal, maxMs: MAX_MS, read, isEnough }))
}

/** Judges from the balances that endpoints report whether an address holds at least `least` base units. */
function moneyBy(balances: readonly bigint[], least: bigint, needed: number): Money {
  const enough = balances.filter(balance => balance >= least).length
  if (enough >= needed) return "all"
  return balances.length - enough >= needed ? "less" : "unknown"
}

/**
 * Returns the balances in one call's answer, one for each address. A balance is undefined if the answer does not have
 * it.
 */
function wordsOf(result: RpcResult, asked: number): (bigint | undefined)[] {
  const unsaid = Array<undefined>(asked).fill(undefined)
  if (!result.ok) return unsaid
  try {
    const words = readMulticall(result.value).map(data =>
      data !== undefined && /^0x[0-9a-f]{64}$/i.test(data) ? BigInt(data) : undefined,
    )
    return words.length === asked ? words : unsaid
  } catch {
    // This is not an answer of Multicall3, so it says nothing.
    return unsaid
  }
}
