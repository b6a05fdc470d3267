/**
 * The relay lane makes calls that others requested: payers' authorizations, and escrow calls. A payer waits for an
 * authorization or a reservation, so a call of these kinds that can't succeed is cancelled immediately with the reason.
 * A merchant's call is held and retried until its deadline.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Signer } from "../../platform/chain/signer.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { kindOf, kindsThat } from "../../platform/db/by-kind.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { verifySoon } from "../scanner/queries.ts"
import { ownCallsWithinBudgets } from "../txmanager/check-gas-budget.ts"
import { holdFailing, holdListed, OVER_BUDGET } from "../txmanager/hold-payouts.ts"
import type { Lane, Payout, Touched, Verdict } from "../txmanager/lane.ts"
import { beyondFlight, failingPayers } from "./check-payer-limits.ts"
import { holdAlike, isRefund, refundsOutOfTurn, waitForTurn, whyUnfunded } from "./check-refund-funds.ts"
import { TAKEN_BACK } from "./find-orphaned-reserves.ts"
import { pausedRelays } from "./find-paused-relays.ts"
import { OTHER_OWNER, refundsOfOthers } from "./find-refund-owners.ts"
import { unneededRelays } from "./find-unneeded-relays.ts"
import { balanceCall, cancelRelay, NO_BUDGET, tendRelays, unseenAt, whyRefused } from "./try-relay.ts"

/** Several relays share a transaction, so a round picks more relays than it has room for transactions. */
const RELAYS_PICKED = 64
/** How long a relay waits for other relays of its payer: half a block. */
const PAYER_WAIT_MS = 1_000

/** Whether a payer waits for the call. */
const isAwaited = (payout: Payout): boolean => kindOf(payout).waits === "payer"

const overRelays =
  (held: Verdict) =>
  (payout: Payout): Verdict =>
    isAwaited(payout) ? { kind: "cancel", reason: NO_BUDGET } : held

/** Returns the relay lane of a network, with the key of the wallet that pays its gas. */
export const relayLane = (network: Network, signer: Signer): Lane => ({
  name: "relay",
  chain: network,
  signer,
  token: network.token.address,
  keepsBooks: false,
  waitsWhileAhead: false,
  callsContractWallets: true,
  hasDeadlines: true,
  takesTurns: true,
  usualKind: "authorize",
  // A buyer waits for the block. With two-second blocks, rounds every two seconds found the block up to 1.3 s late.
  inFlightMs: 500,
  pickable: room => Math.max(room, RELAYS_PICKED),
  prepare: ctx => tendRelays(ctx, network),
  // After a change, the scan must find the transfer of a mined relay. The session of an ended relay must be checked,
  // and the chain must be queried about a failed one.
  afterChange: async (ctx, touched) => {
    const names = await waitersOf(ctx, touched)
    await Promise.all([ctx.wakes.wake("payments", names), verifySoon(ctx, network.chainId)])
  },
  served: sql<boolean>`true`,
  // For each payment, an escrow obeys only the wallet that the payer's signature names.
  ours: address => sql<boolean>`(escrow_id is null
    or exists (select from escrows e where e.session_id = payouts.escrow_id and e.operator = ${address}))`,
  isElsewhere: () => false,
  canOnlyFail: async () => false,
  // Relays are picked even when the budget is spent, so that they are cancelled: a buyer at a checkout must not wait in
  // vain.
  isStopped: async () => false,
  withinBudgets: ownCallsWithinBudgets,
  partiesOf,
  vet: (ctx, payouts) => vet(ctx, network, payouts),
  outdated: (ctx, payouts) => outdated(ctx, network.chainId, payouts),
  // Other buyers also pay to a settlement's address, so money that arrives there says nothing about this payment.
  arrivalReads: payouts =>
    new Map(
      payouts.flatMap(payout => {
        const { deposit_id: id, recipient } = payout
        return kindOf(payout).locksSession && id !== null ? [[id, balanceCall(network, recipient)]] : []
      }),
    ),
  unseenAt: (ctx, held) => unseenAt(ctx, network, held),
  // Relays move no money of ours.
  calldataFaults: async () => () => undefined,
  listed: async (ctx, payout, party) =>
    isAwaited(payout)
      ? { kind: "cancel", reason: "The wallet is on a sanctions list." }
      : await holdListed(ctx, payout, party),
  fails: (ctx, payout, error) => whyItFails(ctx, network, payout, error),
  overTotal: overRelays({ ...OVER_BUDGET, detail: "the daily gas budget of all merchants is spent" }),
  overBudget: overRelays(OVER_BUDGET),
  onHeld: async (ctx, payout, hold) => {
    if (hold.reason === "allowance" || hold.reason === "balance") await holdAlike(ctx, payout, hold)
  },
  cancel: cancelRelay,
  // Database triggers make the session or escrow of an ended call due.
  lockOwners: async () => [],
  onReverted: async () => {},
  alarms: async () => [],
})

/** Returns the verdict on a call that would fail. A refund may fail because of its merchant's wallet. */
async function whyItFails(ctx: Context, network: Network, payout: Payout, error: string): Promise<Verdict> {
  if (isAwaited(payout)) {
    const { words } = await whyRefused(ctx, network, payerOf(payout), payout.amount, error)
    return { kind: "cancel", reason: words }
  }
  const unfunded = isRefund(payout) ? await whyUnfunded(ctx, network, payout) : undefined
  return unfunded ?? holdFailing(error)
}

async function vet(ctx: Context, network: Network, payouts: readonly Payout[]): Promise<Map<string, Verdict>> {
  const cancelled = (reason: string): Verdict => ({ kind: "cancel", reason })
  const paused = await pausedRelays(ctx, network, payouts)
  const needless = await unneededRelays(ctx, payouts)
  const failing = await failingPayers(ctx, payouts.map(payerOf))
  const crowded = await beyondFlight(ctx, network, payouts.filter(isAwaited))
  const outOfTurn = await refundsOutOfTurn(ctx, payouts)
  const emptied = await emptiedCalls(ctx, payouts)
  const others = await refundsOfOthers(ctx, network, payouts)
  const verdicts = payouts.map((payout): [string, Verdict | undefined] => {
    if (emptied.has(payout.id)) return [payout.id, cancelled(TAKEN_BACK)]
    if (others.has(payout.id)) return [payout.id, cancelled(OTHER_OWNER)]
    if (outOfTurn.has(payout.id)) return [payout.id, waitForTurn]
    // No buyer waits at a page for these calls, because the merchant's decision or the end of the authorization causes
    // them.
    if (!isAwaited(payout)) return [payout.id, undefined]
    if (paused.has(payout.id)) return [payout.id, cancelled("Payments on this network are paused.")]
    if (needless.has(payout.id)) return [payout.id, cancelled("The payment was made in another way in the meantime.")]
    const standing = failing.get(payerOf(payout))
    if (standing === "failed") return [payout.id, cancelled("Too many of this wallet's authorizations failed today.")]
    if (standing === "unexplained" || crowded.has(payout.id)) return [payout.id, { kind: "wait", ms: PAYER_WAIT_MS }]
    return [payout.id, undefined]
  })
  return new Map(verdicts.flatMap(([id, verdict]) => (verdict ? [[id, verdict]] : [])))
}

async function outdated(ctx: TxContext, chainId: number, payouts: readonly Payout[]): Promise<Set<string>> {
  const needless = await unneededRelays(ctx, payouts, true)
  const outOfTurn = await refundsOutOfTurn(ctx, payouts)
  // Another worker may have signed relays of the same payers since these payouts were vetted.
  const crowded = await beyondFlight(ctx, { chainId }, payouts.filter(isAwaited))
  return needless.union(outOfTurn).union(crowded)
}

/**
 * Returns the ids of calls whose escrow no longer has money for them. Either a reorg removed the reservation, which
 * failed when it was mined again, or the payer reclaimed the rest of what the escrow held.
 */
async function emptiedCalls(ctx: Context, payouts: readonly Payout[]): Promise<Set<string>> {
  const calls = payouts.filter(payout => !isAwaited(payout))
  const ids = calls.flatMap(({ escrow_id: id }) => id ?? [])
  if (ids.length === 0) return new Set()
  const escrows = await ctx.db
    .selectFrom("escrows")
    .select([
      "session_id",
      sql<boolean>`(authorized = 0 and not exists (select from payouts r where r.escrow_id = escrows.session_id
        and r.kind in ${kindsThat(kind => kind.isReservation === true)} and r.state in ('queued', 'held', 'assigned', 'mined', 'final')))`.as(
        "unreserved",
      ),
      sql<boolean>`(reclaimed > 0)`.as("reclaimed"),
    ])
    .where("session_id", "in", ids)
    .execute()
  const known = new Map(escrows.map(row => [row.session_id, row]))
  const isVain = (payout: Payout): boolean => {
    const escrow = known.get(payout.escrow_id ?? "")
    return escrow !== undefined && (escrow.unreserved || (escrow.reclaimed && kindOf(payout).moneyOf === "escrow"))
  }
  return new Set(calls.filter(isVain).map(({ id }) => id))
}

/** Returns the payer of a relay: the one who signed its authorization. */
const payerOf = ({ payer, recipient }: Payout): Address => payer ?? recipient

/**
 * Returns the addresses to screen. A capture pays the merchant with a payer's money. Merchant and payer are both
 * screened, because either may have been listed since the reservation, which may be months old. For any other call only
 * the payer is screened, who is also the recipient of a void or refund.
 */
async function partiesOf(ctx: Context, payouts: readonly Payout[]): Promise<Map<string, Address[]>> {
  const captures = payouts.flatMap(payout => (kindOf(payout).screensBoth ? (payout.escrow_id ?? []) : []))
  const escrows =
    captures.length === 0
      ? []
      : await ctx.db.selectFrom("escrows").select(["session_id", "payer"]).where("session_id", "in", captures).execute()
  const payers = new Map(escrows.map(row => [row.session_id, row.payer]))
  const ofOne = (payout: Payout): Address[] => {
    const payer = kindOf(payout).screensBoth ? payers.get(payout.escrow_id ?? "") : undefined
    return payer ? [payer, payout.recipient] : [payerOf(payout)]
  }
  return new Map(payouts.map(payout => [payout.id, ofOne(payout)]))
}

/**
 * Returns the wake-up names of these relays. Agents wait for a settlement's relay, and pages wait for their session.
 */
async function waitersOf(ctx: Context, touched: readonly Touched[]): Promise<string[]> {
  const ids = touched.flatMap(each => (kindOf(each).locksSession ? (each.deposit_id ?? []) : []))
  const deposits = ctx.db.selectFrom("deposits").select("resource_id")
  const sold =
    ids.length === 0 ? [] : await deposits.where(sql<boolean>`id = any(${sqlArray("bigint", ids)})`).execute()
  const own = touched.flatMap(({ id, escrow_id: sessionId }) => [id, ...(sessionId === null ? [] : [sessionId])])
  return [...own, ...sold.map(row => row.resource_id)]
}
