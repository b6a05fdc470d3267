/**
 * A lane is the purpose of one of the engine's wallets. A lane names its chain and wallet, and decides what the engine
 * leaves open: whom to screen, which calls to hold or cancel, which budgets apply, and what happens afterwards.
 * `lanes.ts` lists the lanes. The engine imports none of the lanes.
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

/** The columns that identify who waits for a payout. */
export type Touched = Pick<Payout, "id" | "kind" | "escrow_id" | "deposit_id">

/** What to do with a due payout. */
export type Verdict =
  /** With `inBatch`, the payout was simulated in a batch, so it may share a transaction. */
  | { kind: "sign"; inBatch?: true }
  /** The payout stays due, and the next turn considers it again. */
  | { kind: "skip" }
  /** The payout becomes due again in `ms`. No reason against the payout is known. */
  | { kind: "wait"; ms: number }
  /** A reorg removed the payout's money, so its reservation is released until the money is there again. */
  | { kind: "short" }
  | Hold
  | { kind: "cancel"; reason: string }

/** Holds a payout for `waitMs`. Without `waitMs`, each check holds the payout longer, but not past its deadline. */
export interface Hold {
  kind: "hold"
  reason: HeldReason
  detail: string
  waitMs?: number
}

/** A payout and the verdict on it. */
export interface Judged {
  payout: Payout
  verdict: Verdict
}

/** A payout that failed on chain for good. */
export type Reverted = Pick<Payout, "id" | "kind" | "payment_id" | "share" | "deposit_id" | "token">

/** An alarm of a wallet that only its lane knows. `facts` are logged when the alarm starts. */
export interface LaneAlarm {
  reason: StandingAlarm
  isOn: boolean
  facts?: Record<string, unknown>
}

/** The parts of a lane that code inside a transaction may use, because nothing here reaches a network. */
export interface LaneInfo {
  /** The lane's name, which is also the wallet's name in rows, metrics and the log. */
  name: LaneName
  chain: Pick<ReachableChain, "name" | "chainId">
  /** Whether the wallet calls contract wallets, which have a separate gas budget. */
  callsContractWallets: boolean
  /**
   * Compares calldata with its purpose. Returns a function that maps a payout's id to a sentence about the difference,
   * or to undefined.
   */
  calldataFaults(ctx: TxContext, ids: readonly string[]): Promise<(id: string) => string | undefined>
  /** Returns the ids of payouts that must not be signed any more. Runs under the wallet's lock. */
  outdated(ctx: TxContext, payouts: readonly Payout[]): Promise<Set<string>>
  /** The verdict if the gas budget of all merchants, or of contract wallets, is spent. */
  overTotal(payout: Payout): Verdict
  /** The verdict if the merchant's gas budget is spent. */
  overBudget(payout: Payout): Verdict
  /** Locks the rows for which a payout was made, before the payout's own row, and returns their ids. */
  lockOwners(ctx: TxContext, payout: Pick<Payout, "payment_id">): Promise<readonly string[]>
  /**
   * Makes a successor of a payout that failed for good, in the transaction that writes the failure. `owners` come from
   * {@link lockOwners}.
   */
  onReverted(ctx: TxContext, payout: Reverted, owners: readonly string[]): Promise<void>
}

/** A queue of payouts, and the wallet that makes them on one chain. */
export interface Lane extends LaneInfo {
  chain: ReachableChain
  signer: Signer
  /** Calls that move this token must emit its transfer. Undefined if no token is known. */
  token: Address | undefined
  /** Whether the wallet moves money out of deposits, so that its books are compared with the chain. */
  keepsBooks: boolean
  /**
   * Whether nothing is judged while the chain has transactions of the wallet that are unknown here. Set this if a
   * verdict may cancel a call that one of these transactions has executed, and another call would then be made.
   */
  waitsWhileAhead: boolean
  /** Whether the lane's calls have deadlines. A call that is not sent in time only uses up its nonce. */
  hasDeadlines: boolean
  /** Whether merchants take turns when more calls are due than fit, because a buyer may wait for each call. */
  takesTurns: boolean
  /** The kind of payout that the alarm `gas_total` describes. */
  usualKind: PayoutKindName
  /** The wait before the next round while a transaction is in flight. */
  inFlightMs: number
  /** Returns how many due payouts a turn picks if the wallet has room for this many transactions. */
  pickable(room: number): number
  /** Prepares a round; needs neither endpoints nor an active wallet. */
  prepare(ctx: Context): Promise<void>
  /** Runs after payouts of the lane ended or were postponed. `touched` are the payouts that may have changed. */
  afterChange(ctx: Context, touched: readonly Touched[]): Promise<void>
  /** SQL: whether this process handles a row of `payouts` at all. */
  served: RawBuilder<boolean>
  /** SQL: whether this process can sign for a row of `payouts` with the wallet at an address. */
  ours(address: RawBuilder<unknown>): RawBuilder<boolean>
  /** Whether another process must sign calls to this contract. */
  isElsewhere(to: Address): boolean
  /** Whether no transaction that a halted earlier wallet has in flight can move money twice. */
  canOnlyFail(ctx: Context, earlier: Row<"wallets">, finalized: bigint): Promise<boolean>
  /** Whether to pick nothing because the total gas budget has no room for another transaction of `most` wei. */
  isStopped(ctx: Context, most: bigint): Promise<boolean>
  /**
   * Returns the payouts whose merchants' gas budgets have room for `most` wei, and how many other payouts were held.
   */
  withinBudgets(
    ctx: Context,
    wallet: Row<"wallets">,
    due: Payout[],
    most: bigint,
    dueExcept: (except: Except) => Promise<Payout[]>,
  ): Promise<{ due: Payout[]; held: number }>
  /** Returns the addresses to screen, by payout id. */
  partiesOf(ctx: Context, payouts: readonly Payout[]): Promise<Map<string, Address[]>>
  /**
   * Returns verdicts against payouts, by payout id, for reasons that need no endpoint. Payouts without such a reason
   * have no entry.
   */
  vet(ctx: Context, payouts: readonly Payout[]): Promise<Map<string, Verdict>>
  /**
   * Returns calls that read the balances of receiving addresses, by deposit id, because a payer may have paid manually.
   */
  arrivalReads(payouts: readonly Payout[]): Map<bigint, RpcCall>
  /**
   * Returns the deposits that hold more than was recorded, according to each endpoint's answer to {@link arrivalReads}.
   */
  unseenAt(ctx: Context, held: ReadonlyMap<bigint, readonly (RpcResult | undefined)[]>): Promise<Set<bigint>>
  /** The verdict if a party is on a sanctions list. */
  listed(ctx: Context, payout: Payout, party: Address): Promise<Verdict>
  /** The verdict if endpoints agree that the call fails. `error` comes from an endpoint. */
  fails(ctx: Context, payout: Payout, error: string): Promise<Verdict>
  /** Runs after a payout is held, because the same reason may hold other payouts. */
  onHeld(ctx: Context, payout: Payout, hold: Hold): Promise<void>
  /** Cancels a payout that has no nonce, with a sentence as the reason. */
  cancel(ctx: Context, payout: Payout, reason: string): Promise<void>
  /** Returns the alarms that only the lane knows. */
  alarms(ctx: Context, wallet: Row<"wallets">): Promise<LaneAlarm[]>
}
