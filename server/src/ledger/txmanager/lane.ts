/**
 * What a wallet of the engine works for. A lane names its chain and its wallet, and decides what the engine does not: whom
 * to screen, which calls are held or cancelled, which budgets bound them, and what follows when one ends. `lanes.ts` lists
 * the lanes. The engine imports none of them.
 */
import type { RawBuilder } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { ReachableChain } from "../../platform/chain/networks.ts"
import type { RpcCall, RpcResult } from "../../platform/chain/rpc.ts"
import type { Signer } from "../../platform/chain/signer.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { LaneName, PayoutKindName } from "../../platform/db/payout-kinds.ts"
import type { HeldReason, Row, StandingAlarm } from "../../platform/db/schema.ts"
import type { Except } from "./check-gas-budget.ts"

/** A row of `payouts`: one call that a wallet makes. */
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
  | Hold
  | { kind: "cancel"; reason: string }

/** `waitMs`: how long it is held. Without it, each check holds it longer, but not past its deadline. */
export interface Hold {
  kind: "hold"
  reason: HeldReason
  detail: string
  waitMs?: number
}

/** A verdict with the payout that it is about. */
export interface Judged {
  payout: Payout
  verdict: Verdict
}

/** A payout that failed on chain for good. */
export type Reverted = Pick<Payout, "id" | "kind" | "payment_id" | "share" | "deposit_id" | "token">

/** An alarm of a wallet that only its lane knows; `facts` are logged when it begins. */
export interface LaneAlarm {
  reason: StandingAlarm
  isOn: boolean
  facts?: Record<string, unknown>
}

/** What of a lane code inside a transaction gets: nothing that reaches a network. */
export interface LaneInfo {
  /** Also the name of its wallet, in rows, metrics and the log. */
  name: LaneName
  chain: Pick<ReachableChain, "name" | "chainId">
  /** Whether the wallet calls contract wallets, which have a gas budget of their own. */
  callsContractWallets: boolean
  /** Compares calldata with what it is for. Returns a function from a payout's id to what differs, in a sentence. */
  calldataFaults(ctx: TxContext, ids: readonly string[]): Promise<(id: string) => string | undefined>
  /** Returns the ids of payouts that must not be signed any more; called under the wallet's lock. */
  outdated(ctx: TxContext, payouts: readonly Payout[]): Promise<Set<string>>
  /** The verdict if the gas budget of all merchants, or of contract wallets, is spent. */
  overTotal(payout: Payout): Verdict
  /** The verdict if the merchant's gas budget is spent. */
  overBudget(payout: Payout): Verdict
  /** Locks what a payout that ended was made for, before its own row; returns the ids of those rows. */
  lockOwners(ctx: TxContext, payout: Pick<Payout, "payment_id">): Promise<readonly string[]>
  /** Makes a payout again that failed for good, in the transaction that writes it; `owners` are from {@link lockOwners}. */
  onReverted(ctx: TxContext, payout: Reverted, owners: readonly string[]): Promise<void>
}

/** A queue of payouts, and the wallet that makes them on one chain. */
export interface Lane extends LaneInfo {
  chain: ReachableChain
  signer: Signer
  /** A call that moves this token must emit its transfer. Undefined where no token is known. */
  token: Address | undefined
  /** Whether the wallet moves money out of deposits, so that its books are compared with the chain. */
  keepsBooks: boolean
  /** Whether its calls have deadlines: one that is not sent in time only uses up its nonce. */
  hasDeadlines: boolean
  /** Whether merchants take turns when more is due than fits, because somebody may be waiting for each call. */
  takesTurns: boolean
  /** The kind that the alarm `gas_total` is about. */
  usualKind: PayoutKindName
  /** Wait before the next round while a transaction is in flight. */
  inFlightMs: number
  /** How many due payouts a turn picks when the wallet has room for this many transactions. */
  pickable(room: number): number
  /** Prepares a round. Needs no endpoint and no active wallet. */
  prepare(ctx: Context): Promise<void>
  /** Called when payouts of the lane ended or were postponed; `touched`: those that may have changed. */
  afterChange(ctx: Context, touched: readonly Touched[]): Promise<void>
  /** SQL: whether this process works on a row of `payouts` at all. */
  served: RawBuilder<boolean>
  /** SQL: which rows of `payouts` this process can sign for with the wallet of an address. */
  ours(address: RawBuilder<unknown>): RawBuilder<boolean>
  /** Whether another process must sign for calls of this contract. */
  isElsewhere(to: Address): boolean
  /** Whether no transaction that a halted earlier wallet has in flight can move money twice. */
  canOnlyFail(ctx: Context, earlier: Row<"wallets">, finalized: bigint): Promise<boolean>
  /** Whether to pick nothing because the gas budget of all merchants has no room for another transaction of `most` wei. */
  isStopped(ctx: Context, most: bigint): Promise<boolean>
  /** Returns the payouts whose merchants' gas budgets have room for `most` wei, and how many others were held. */
  withinBudgets(
    ctx: Context,
    wallet: Row<"wallets">,
    due: Payout[],
    most: bigint,
    dueExcept: (except: Except) => Promise<Payout[]>,
  ): Promise<{ due: Payout[]; held: number }>
  /** Returns the addresses to screen, by the payout's id. */
  partiesOf(ctx: Context, payouts: readonly Payout[]): Promise<Map<string, Address[]>>
  /**
   * Returns verdicts against payouts for reasons that need no endpoint, by id; a payout without such a reason is not in
   * the map.
   */
  vet(ctx: Context, payouts: readonly Payout[]): Promise<Map<string, Verdict>>
  /** Returns calls that read what receiving addresses hold, by the deposit's id: the payer may have paid by hand. */
  arrivalReads(payouts: readonly Payout[]): Map<bigint, RpcCall>
  /** Returns the deposits that hold more than the rows explain, by each endpoint's answer to {@link arrivalReads}. */
  unseenAt(ctx: Context, held: ReadonlyMap<bigint, readonly (RpcResult | undefined)[]>): Promise<Set<bigint>>
  /** The verdict if a party is on a sanctions list. */
  listed(ctx: Context, payout: Payout, party: Address): Promise<Verdict>
  /** The verdict if endpoints agree that the call fails; `error` is an endpoint's. */
  fails(ctx: Context, payout: Payout, error: string): Promise<Verdict>
  /** Called when a payout is held; the same reason may hold others. */
  onHeld(ctx: Context, payout: Payout, hold: Hold): Promise<void>
  /** Cancels a payout without a nonce, with the reason in a sentence. */
  cancel(ctx: Context, payout: Payout, reason: string): Promise<void>
  /** Returns the alarms that only the lane knows. */
  alarms(ctx: Context, wallet: Row<"wallets">): Promise<LaneAlarm[]>
}
