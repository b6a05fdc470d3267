/**
 * The payout lane moves money out of deposits: shares, sweeps and returns. A payout that can't be made now is held and
 * retried.
 */
import { sql } from "kysely"
import { encodeFunctionData } from "viem"
import { depositFactoryAbi } from "../../platform/chain/abi.ts"
import { parseAddress } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { anchorDeployment } from "../../platform/chain/receipt-anchor.ts"
import { hexNumber } from "../../platform/chain/rpc.ts"
import type { Signer } from "../../platform/chain/signer.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { PayoutKindName } from "../../platform/db/payout-kinds.ts"
import type { Row } from "../../platform/db/schema.ts"
import { withinBudgets } from "../txmanager/check-gas-budget.ts"
import { isTotalSpent } from "../txmanager/check-total-budget.ts"
import { holdFailing, holdListed, OVER_BUDGET } from "../txmanager/hold-payouts.ts"
import type { Lane, Payout, Reverted, Verdict } from "../txmanager/lane.ts"
import { askEach } from "../txmanager/simulate-on-each.ts"
import { anchorFaults } from "./check-anchors.ts"
import { calldataFaults } from "./check-signed-transactions.ts"
import { laneAlarms } from "./find-payout-alarms.ts"
import { hasEnded, usedApproval } from "./find-used-approval.ts"
import { reserveShort } from "./insert-payout.ts"
import { failedOften, heirsOf, makePayouts, sweepAfterRevert } from "./make-payouts.ts"
import { cancelReturn, returnAgain } from "./make-returns.ts"

/** A payout that failed this often is made once more, but the new one is held until a person retries it. */
const MAX_GENERATIONS = 5
const HOUR_MS = 3_600_000

/** Returns a network's payout lane, with the key of the wallet that its deposit factory obeys. */
export function payoutLane(network: Network, signer: Signer): Lane {
  const { depositFactory, token } = network
  // A factory obeys one wallet, so payouts from another factory's deposits are left to the process that has that
  // wallet's key. Calls that write another factory's receipts are left to that process too.
  const served = sql<boolean>`(to_address = ${depositFactory} or kind = 'anchor' and recipient = ${depositFactory})`
  return {
    name: "payout",
    chain: network,
    signer,
    token: token.address,
    keepsBooks: true,
    waitsWhileAhead: false,
    callsContractWallets: false,
    hasDeadlines: false,
    takesTurns: false,
    usualKind: "share",
    inFlightMs: 2_000,
    pickable: room => room,
    prepare: ctx => reserveShort(ctx, network.chainId),
    // Only loops wait for these changes, never a payer.
    afterChange: ctx => ctx.wakes.wake("payments", []),
    served,
    ours: () => served,
    isElsewhere: to => to !== depositFactory && to !== anchorDeployment.address,
    canOnlyFail: (ctx, earlier, finalized) => canOnlyFail(ctx, network, earlier, finalized),
    isStopped: isTotalSpent,
    withinBudgets,
    partiesOf: async (_ctx, payouts) => new Map(payouts.map(({ id, recipient }) => [id, [recipient]])),
    vet: async () => new Map(),
    outdated: async () => new Set(),
    arrivalReads: () => new Map(),
    unseenAt: async () => new Set(),
    // Runs once when a payout gets its nonce, and again when the payout is read back for signing.
    calldataFaults: (ctx, ids) => faultsOf(ctx, network, ids),
    listed: holdListed,
    fails: (ctx, payout, error) => whyItFails(ctx, network, payout, error),
    overTotal: () => ({ kind: "skip" }),
    overBudget: () => OVER_BUDGET,
    onHeld: async () => {},
    cancel: cancelReturn,
    lockOwners: lockPayments,
    onReverted: makeAgain,
    alarms: (ctx, wallet) => laneAlarms(ctx, network, wallet),
  }
}

async function faultsOf(ctx: TxContext, network: Pick<Network, "chainId" | "depositFactory">, ids: readonly string[]) {
  const anchors = await anchorFaults(ctx, network, ids)
  const ofDeposits = await calldataFaults(
    ctx,
    network,
    ids.filter(id => !anchors.has(id)),
  )
  return (id: string) => (anchors.has(id) ? anchors.get(id) : ofDeposits(id))
}

/** Returns the verdict on a payout that would fail. A return's approval may be used or expired. */
async function whyItFails(ctx: Context, network: Network, payout: Payout, error: string): Promise<Verdict> {
  const used = await usedApproval(ctx, network, payout)
  if (used === undefined && (await hasEnded(ctx, network, payout)))
    return { kind: "cancel", reason: "the wallet's approval expired before the return could be sent" }
  return holdFailing(used ?? error)
}

/**
 * Whether a quorum reports that the factory obeys another wallet at the final block, so the halted wallet's releases
 * fail. The contract accepts a merchant's approval once, no matter who sends it.
 */
async function canOnlyFail(
  ctx: Context,
  network: Network,
  { chain_id, address }: Row<"wallets">,
  finalized: bigint,
): Promise<boolean> {
  const elsewhere = await ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", chain_id)
    .where("wallet", "=", address)
    .where("state", "in", ["assigned", "mined"])
    .where("to_address", "<>", network.depositFactory)
    .where("kind", "<>", "anchor")
    .executeTakeFirst()
  if (elsewhere) return false
  const data = encodeFunctionData({ abi: depositFactoryAbi, functionName: "operator" })
  const call = { method: "eth_call", params: [{ to: network.depositFactory, data }, hexNumber(finalized)] }
  const answers = await askEach(network, [call], ctx.signal)
  const others = answers.filter(results => {
    const [result] = results ?? []
    const operator = parseAddress(`0x${result?.ok && typeof result.value === "string" ? result.value.slice(26) : ""}`)
    return operator !== undefined && operator !== address
  })
  return others.length >= quorumOf(network)
}

/**
 * Locks a payout's payment and its heirs before their payouts and books, as settlement does. Returns all of them, the
 * payment first. While this function waits for a lock, settlement may add heirs.
 */
async function lockPayments(ctx: TxContext, { payment_id: id }: Pick<Payout, "payment_id">): Promise<string[]> {
  if (id === null) return []
  let locked = new Set<string>()
  for (;;) {
    const all = new Set([id, ...(await heirsOf(ctx, id))])
    if (all.isSubsetOf(locked)) return [...all]
    const rows = ctx.db
      .selectFrom("payments")
      .select("id")
      .where("id", "in", [...all])
    await rows.orderBy("id").forNoKeyUpdate().execute()
    locked = locked.union(all)
  }
}

/**
 * Makes a linked successor of a payout that failed for good, and holds it until its simulation succeeds. Makes no
 * successor if the payment was reversed.
 */
const makeAgain = (ctx: TxContext, payout: Reverted, payments: readonly string[]): Promise<void> =>
  successors[payout.kind]?.(ctx, payout, payments) ?? Promise.resolve()

/** The function that makes each kind's successor. */
const successors: Partial<Record<PayoutKindName, typeof makeAgain>> = {
  share: shareAgain,
  sweep: (ctx, swept) => sweepAfterRevert(ctx, swept, MAX_GENERATIONS, new Date(ctx.now().getTime() + HOUR_MS)),
  return: (ctx, returned) => returnAgain(ctx, returned, MAX_GENERATIONS),
}

/** Makes a share again. The payments that now hold the transfers owe a share too. */
async function shareAgain(
  ctx: TxContext,
  { payment_id: id, share }: Reverted,
  payments: readonly string[],
): Promise<void> {
  if (id === null) return
  const { n } = await ctx.db
    .selectFrom("payouts")
    .select(sql<number>`count(*)::int`.as("n"))
    .where("payment_id", "=", id)
    .where("share", "=", share)
    .executeTakeFirstOrThrow()
  const parked = n < MAX_GENERATIONS ? {} : { parked: failedOften(n) }
  for (const each of payments) await makePayouts(ctx, each, { reason: "reverted", ...parked })
}
