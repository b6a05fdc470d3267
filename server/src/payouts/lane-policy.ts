/**
 * What differs between the lanes. The payout lane moves money out of deposits: a payout that can't be made now is held
 * and retried. The relay lane carries out buyers' authorizations: a buyer waits for each, so a relay that can't be
 * carried out is cancelled at once with the reason.
 */
import { type RawBuilder, sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { RpcCall } from "../chain/rpc.ts"
import { listedBy } from "../chain/sanctions.ts"
import type { Context, TxContext } from "../context.ts"
import type { HeldReason, Lane } from "../db/payout-rows.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { verifySoon } from "../scanner/queries.ts"
import { ownCallsWithinBudgets, withinBudgets } from "./gas-budget.ts"
import { reserveShort } from "./insert-payout.ts"
import { TAKEN_BACK } from "./orphaned-reserves.ts"
import { outpaid } from "./outpaid.ts"
import { pausedPayouts } from "./pause.ts"
import { beyondFlight, failingPayers } from "./payer-limits.ts"
import { refundsOutOfTurn, waitForTurn, whyUnfunded } from "./refund-funds.ts"
import { OTHER_OWNER, refundsOfOthers } from "./refund-owners.ts"
import { balanceCall, NO_BUDGET, tendRelays, whyRefused } from "./relays.ts"
import { isTotalSpent } from "./total-budget.ts"
import { hasEnded, usedApproval } from "./used-approval.ts"

/** A payout, return or relay: a row of `payouts`. */
export type Payout = Row<"payouts">

/** What identifies those who wait for a payout. */
export type Touched = Pick<Payout, "id" | "kind" | "escrow_id" | "deposit_id">

/** What to do with a payout that is due. */
export type Verdict =
  /** `inBatch`: its simulation was part of a batch's, so it may share its transaction. */
  | { kind: "sign"; inBatch?: true }
  /** Stays due, and is considered again in the next turn. */
  | { kind: "skip" }
  /** Is due again in `ms`; no reason against it is known. */
  | { kind: "wait"; ms: number }
  /** A reorg removed its money: its promise is released until the money is there again. */
  | { kind: "short" }
  /** `waitMs`: how long it is held. Without it, each check holds it longer, but not past its deadline. */
  | { kind: "hold"; reason: HeldReason; detail: string; waitMs?: number }
  | { kind: "cancel"; reason: string }

/** A verdict with the payout that it is about. */
export interface Judged {
  payout: Payout
  verdict: Verdict
}

const DETAIL_LENGTH = 200
/** Several relays share a transaction, so more are picked than there is room for transactions. */
const RELAYS_PICKED = 64
/** How long a relay waits for others of its payer: half a block. */
const PAYER_WAIT_MS = 1_000
/** How long a payout is held while its merchant's budget is spent: the next turn computes the real wait. */
const BUDGET_WAIT_MS = 30_000

/** The decisions in which the lanes differ. The engine calls these functions and never checks the lane itself. */
export interface LanePolicy {
  /** Whether the lane's wallet moves money out of deposits, so that its books are compared with the chain. */
  keepsBooks: boolean
  /** Whether the lane carries out calls to contract wallets, which have a gas budget of their own. */
  callsContractWallets: boolean
  /** Wait before the next round while a transaction is in flight. */
  inFlightMs: number
  /** How many due payouts a turn picks when the wallet has room for this many transactions. */
  pickable(room: number): number
  /** Whether merchants take turns when more is due than fits, because somebody may be waiting for each call. */
  takesTurns: boolean
  /** Prepares a round. Needs no endpoint and no active wallet. */
  prepare(ctx: Context, network: Network): Promise<void>
  /** Called when payouts of the lane ended or were postponed; `touched`: those that may have changed. */
  afterChange(ctx: Context, network: Network, touched: readonly Touched[]): Promise<void>
  /** Which rows of `payouts` this process can sign for with the wallet of an address. */
  ours(network: Network, address: RawBuilder<unknown>): RawBuilder<boolean>
  /** Whether to pick nothing because the gas budget of all merchants has no room for another transaction. */
  isStopped: typeof isTotalSpent
  /** Returns the payouts whose merchants' gas budgets have room for `most` wei, and how many others were held. */
  withinBudgets: typeof withinBudgets
  /** Returns the addresses to screen, by the payout's id. */
  partiesOf(ctx: Context, payouts: readonly Payout[]): Promise<Map<string, Address[]>>
  /**
   * Returns verdicts against payouts for reasons that need no endpoint, by id; a payout without such a reason is not in
   * the map.
   */
  vet(ctx: Context, network: Network, payouts: readonly Payout[]): Promise<Map<string, Verdict>>
  /** Returns the ids of payouts that must not be signed any more; called under the wallet's lock. */
  outdated(ctx: TxContext, payouts: readonly Payout[]): Promise<Set<string>>
  /**
   * Returns calls that read what receiving addresses hold, by the deposit's id: the payer may have paid by hand
   * already.
   */
  arrivalReads(network: Network, payouts: readonly Payout[]): Map<bigint, RpcCall>
  /** The verdict if a party is on a sanctions list. */
  listed(ctx: Context, payout: Payout, party: Address): Promise<Verdict>
  /** The verdict if endpoints agree that the call fails; `error` is an endpoint's. */
  fails(ctx: Context, network: Network, payout: Payout, error: string): Promise<Verdict>
  /** The verdict if the gas budget of all merchants, or of contract wallets, is spent. */
  overTotal(payout: Payout): Verdict
  /** The verdict if the merchant's gas budget is spent. */
  overBudget(payout: Payout): Verdict
}

const holdListed = async (ctx: Context, { recipient }: Payout, party: Address): Promise<Verdict> => ({
  kind: "hold",
  reason: "sanctions",
  detail: `the ${party === recipient ? "recipient" : "payer"} is on a sanctions list: ${await listedBy(ctx, party)}`,
})

const OVER_BUDGET = {
  kind: "hold" as const,
  reason: "gas_budget" as const,
  detail: "the merchant's gas budget of a day is spent",
  waitMs: BUDGET_WAIT_MS,
}

const payoutLane: LanePolicy = {
  keepsBooks: true,
  callsContractWallets: false,
  inFlightMs: 2_000,
  pickable: room => room,
  takesTurns: false,
  prepare: (ctx, network) => reserveShort(ctx, network.chainId),
  // Loops wait for it, and no payer.
  afterChange: ctx => ctx.wakes.wake("payments", []),
  // A factory obeys one wallet: payouts out of another factory's deposits are left to the process that has its key.
  ours: ({ depositFactory }) => sql<boolean>`to_address = ${depositFactory}`,
  isStopped: isTotalSpent,
  withinBudgets,
  partiesOf: async (_ctx, payouts) => new Map(payouts.map(({ id, recipient }) => [id, [recipient]])),
  vet: async () => new Map(),
  outdated: async () => new Set(),
  arrivalReads: () => new Map(),
  listed: holdListed,
  fails: async (ctx, network, payout, error) => {
    const used = await usedApproval(ctx, network, payout)
    if (used === undefined && (await hasEnded(ctx, network, payout)))
      return { kind: "cancel", reason: "the wallet's approval ended before it could be sent" }
    return { kind: "hold", reason: "simulation", detail: (used ?? error).slice(0, DETAIL_LENGTH) }
  },
  overTotal: () => ({ kind: "skip" }),
  overBudget: () => OVER_BUDGET,
}

/**
 * Whether an escrow's call is held and retried until its deadline (`relay_by`), as a payout is. A reservation is not:
 * its payer waits for it.
 */
const isHeldCall = ({ kind }: Payout): boolean => kind === "capture" || kind === "void" || kind === "refund"

/** Whether a payer waits for the call. */
const isAwaited = (payout: Payout): boolean => !isHeldCall(payout)

const overRelays =
  (held: Verdict) =>
  (payout: Payout): Verdict =>
    isHeldCall(payout) ? held : { kind: "cancel", reason: NO_BUDGET }

/** Why to hold an escrow's call that endpoints say fails. For a refund, the reason may be its merchant's wallet. */
async function holdFailing(ctx: Context, network: Network, payout: Payout, error: string): Promise<Verdict> {
  const unfunded = payout.kind === "refund" ? await whyUnfunded(ctx, network, payout) : undefined
  return unfunded ?? { kind: "hold", reason: "simulation", detail: error.slice(0, DETAIL_LENGTH) }
}

/**
 * Returns the ids of calls whose escrow has no money for them any more. Either a reorg removed the reservation and it
 * failed when it was mined again, or, for captures and voids, the payer reclaimed what was left.
 */
async function emptiedPayouts(ctx: Context, payouts: readonly Payout[]): Promise<Set<string>> {
  const calls = payouts.filter(isHeldCall)
  if (calls.length === 0) return new Set()
  const ids = calls.flatMap(({ escrow_id: id }) => id ?? [])
  const escrows = await ctx.db
    .selectFrom("escrows")
    .select([
      "session_id",
      sql<boolean>`(authorized = 0 and not exists (select from payouts r where r.escrow_id = escrows.session_id
        and r.kind = 'reserve' and r.state in ('queued', 'held', 'assigned', 'mined', 'final')))`.as("unreserved"),
      sql<boolean>`(reclaimed > 0)`.as("reclaimed"),
    ])
    .where("session_id", "in", ids)
    .execute()
  const known = new Map(escrows.map(row => [row.session_id, row]))
  const isVain = ({ kind, escrow_id: of }: Payout): boolean => {
    const escrow = known.get(of ?? "")
    return escrow !== undefined && (escrow.unreserved || (escrow.reclaimed && kind !== "refund"))
  }
  return new Set(calls.filter(isVain).map(({ id }) => id))
}

/** The payer signed the authorization; the recipient is a deposit of ours. */
const payerOf = ({ payer, recipient }: Payout): Address => payer ?? recipient

/**
 * Returns the addresses to screen. A capture pays its merchant with the money of a payer who may have been listed since
 * the reservation, months ago, so both are screened. For any other call it is the payer, who is also the recipient of a
 * void or refund.
 */
async function relayParties(ctx: Context, payouts: readonly Payout[]): Promise<Map<string, Address[]>> {
  const captures = payouts.flatMap(({ kind, escrow_id: id }) => (kind === "capture" && id !== null ? [id] : []))
  const escrows =
    captures.length === 0
      ? []
      : await ctx.db.selectFrom("escrows").select(["session_id", "payer"]).where("session_id", "in", captures).execute()
  const payers = new Map(escrows.map(row => [row.session_id, row.payer]))
  const partiesOf = (payout: Payout): Address[] => {
    const payer = payout.kind === "capture" ? payers.get(payout.escrow_id ?? "") : undefined
    return payer ? [payer, payout.recipient] : [payerOf(payout)]
  }
  return new Map(payouts.map(payout => [payout.id, partiesOf(payout)]))
}

/** What wake-ups call these relays: agents wait for a settlement's relay, pages for their session. */
async function waitersOf(ctx: Context, touched: readonly Touched[]): Promise<string[]> {
  const ids = touched.flatMap(({ kind, deposit_id: id }) => (kind === "authorize" && id !== null ? [id] : []))
  const deposits = ctx.db.selectFrom("deposits").select("resource_id")
  const sold =
    ids.length === 0 ? [] : await deposits.where(sql<boolean>`id = any(${sqlArray("bigint", ids)})`).execute()
  const own = touched.flatMap(({ id, escrow_id: sessionId }) => [id, ...(sessionId === null ? [] : [sessionId])])
  return [...own, ...sold.map(row => row.resource_id)]
}

const relayLane: LanePolicy = {
  keepsBooks: false,
  callsContractWallets: true,
  // A buyer waits for the block. On blocks of two seconds, rounds every two seconds found it 1.3 s late at worst.
  inFlightMs: 500,
  pickable: room => Math.max(room, RELAYS_PICKED),
  takesTurns: true,
  prepare: tendRelays,
  // The scan must find the transfer of a mined relay, the session of an ended relay must be checked, and the chain asked
  // about a failed one.
  afterChange: async (ctx, network, touched) => {
    const names = await waitersOf(ctx, touched)
    await Promise.all([ctx.wakes.wake("payments", names), verifySoon(ctx, network.chainId)])
  },
  // An escrow obeys the wallet that its payer's signature names.
  ours: (_network, address) => sql<boolean>`(escrow_id is null
    or exists (select from escrows e where e.session_id = payouts.escrow_id and e.operator = ${address}))`,
  // Relays are picked even then, to be cancelled: a buyer at a checkout must not wait for nothing.
  isStopped: async () => false,
  withinBudgets: ownCallsWithinBudgets,
  partiesOf: relayParties,
  vet: async (ctx, network, payouts) => {
    const cancelled = (reason: string): Verdict => ({ kind: "cancel", reason })
    const paused = await pausedPayouts(ctx, network, payouts)
    const needless = await outpaid(ctx, payouts)
    const failing = await failingPayers(ctx, payouts.map(payerOf))
    const crowded = await beyondFlight(ctx, network, payouts.filter(isAwaited))
    const outOfTurn = await refundsOutOfTurn(ctx, payouts)
    const reclaimed = await emptiedPayouts(ctx, payouts)
    const others = await refundsOfOthers(ctx, network, payouts)
    const verdicts = payouts.map((payout): [string, Verdict | undefined] => {
      if (reclaimed.has(payout.id)) return [payout.id, cancelled(TAKEN_BACK)]
      if (others.has(payout.id)) return [payout.id, cancelled(OTHER_OWNER)]
      if (outOfTurn.has(payout.id)) return [payout.id, waitForTurn]
      // No buyer waits at a page for these calls: the merchant's decision, or the end of the authorization, asks for
      // them.
      if (isHeldCall(payout)) return [payout.id, undefined]
      if (paused.has(payout.id)) return [payout.id, cancelled("Payments on this network are paused.")]
      if (needless.has(payout.id)) return [payout.id, cancelled("It was paid in another way meanwhile.")]
      const standing = failing.get(payerOf(payout))
      if (standing === "failed") return [payout.id, cancelled("Too many authorizations of this wallet failed today.")]
      if (standing === "unexplained" || crowded.has(payout.id)) return [payout.id, { kind: "wait", ms: PAYER_WAIT_MS }]
      return [payout.id, undefined]
    })
    return new Map(verdicts.flatMap(([id, verdict]) => (verdict ? [[id, verdict]] : [])))
  },
  outdated: async (ctx, payouts) => {
    const needless = await outpaid(ctx, payouts, true)
    const outOfTurn = await refundsOutOfTurn(ctx, payouts)
    const [first] = payouts
    // Another worker may have signed for the same payers since these were vetted.
    const crowded = first
      ? await beyondFlight(ctx, { chainId: first.chain_id }, payouts.filter(isAwaited))
      : new Set<string>()
    return needless.union(outOfTurn).union(crowded)
  },
  arrivalReads: (network, payouts) =>
    // Other buyers also pay at the address of a settlement, so money that arrives there says nothing about this
    // payment.
    new Map(
      payouts.flatMap(({ kind, deposit_id: id, recipient }) =>
        kind === "authorize" && id !== null ? [[id, balanceCall(network, recipient)]] : [],
      ),
    ),
  listed: async (ctx, payout, party) =>
    isHeldCall(payout)
      ? await holdListed(ctx, payout, party)
      : { kind: "cancel", reason: "The wallet is on a sanctions list." },
  fails: async (ctx, network, payout, error) =>
    isHeldCall(payout)
      ? await holdFailing(ctx, network, payout, error)
      : {
          kind: "cancel",
          reason: (await whyRefused(ctx, network, payerOf(payout), payout.amount, error)).words,
        },
  overTotal: overRelays({ ...OVER_BUDGET, detail: "the gas budget of all merchants of a day is spent" }),
  overBudget: overRelays(OVER_BUDGET),
}

/** The policy of each lane. */
export const policies: Record<Lane, LanePolicy> = { payout: payoutLane, relay: relayLane }
