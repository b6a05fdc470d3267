/**
 * The kinds of payouts: one row for each, with everything in which they differ for the code that picks, budgets, signs
 * and ends them. A new kind is a row here, a file that makes its payouts, and a migration for the constraints of
 * `payouts.kind`; `txmanager/new-kind.test.ts` adds one.
 */

/** The two queues, each with its own wallet: payouts out of deposits, and calls that payers or merchants asked for. */
export type LaneName = "payout" | "relay"

/** A kind of payout. A flag that is left out is false. */
export interface PayoutKind {
  lane: LaneName
  /** Whose money its call moves: a deposit's, the signing payer's, what an escrow holds, or a merchant's wallet's. */
  moneyOf: "deposit" | "payer" | "escrow" | "merchant" | "nobody"
  /**
   * Who waits for it, and so how long it is held when it can't be made now: for a payer never, it is cancelled at once;
   * for a merchant until its deadline; for a recipient until it can be made.
   */
  waits: "payer" | "merchant" | "recipient"
  /**
   * Its share of a merchant's gas budget. `half`: strangers cause it. `by_amount`: three quarters if it is small, all
   * otherwise. `all`. `free`: it counts for no merchant's budget.
   */
  budget: "half" | "by_amount" | "all" | "free"
  /** How often its gas counts in the half and in the total: a reservation also counts for the call that ends it. */
  gasTimes: 1n | 2n
  /** Whether a reservation has paid for its gas in the total of all merchants: for each, or for a payment's first. */
  prepaid: "no" | "first" | "each"
  /**
   * When its turn comes if more is due than fits, in the order of these names. `refund`: one of a merchant at a time.
   * Undefined where merchants take no turns.
   */
  turn: "buyer" | "release" | "capture" | "refund" | undefined
  /** What follows a revert. `again`: its lane makes another. `error`: it is logged. `ordinary`: the same, as a warning. */
  afterRevert: "again" | "error" | "ordinary"
  /** Its signature is public once it was broadcast: anyone may carry it out, at once or later. */
  isPublic?: true
  /** Several of one merchant share a transaction. */
  isBatched?: true
  /** The transaction that carries several payouts out. It is never counted beside them. */
  isBatch?: true
  /** Its end locks the session that it pays, so that end is written in a transaction of its own. */
  locksSession?: true
  /** It moves all that is left, which may be more than its row says. */
  movesRest?: true
  /** Its recipient is screened as well as its payer, who is another one. */
  screensBoth?: true
  /** It sells something that no deposit is paid for. */
  isReservation?: true
  /** It may take money that waits for the merchant's decision, with the approval that is in its calldata. */
  hasApproval?: true
  /** The gas limit of a call that a key signed; with any other limit, a contract wallet signed it. */
  gasOfKey?: bigint
}

const outOfDeposit = {
  lane: "payout",
  moneyOf: "deposit",
  waits: "recipient",
  budget: "by_amount",
  gasTimes: 1n,
  prepaid: "no",
  turn: undefined,
  afterRevert: "again",
} as const satisfies PayoutKind

const ofPayer = {
  lane: "relay",
  moneyOf: "payer",
  waits: "payer",
  budget: "half",
  gasTimes: 1n,
  prepaid: "no",
  turn: "buyer",
  afterRevert: "error",
} as const satisfies PayoutKind

const ofMerchant = {
  lane: "relay",
  moneyOf: "escrow",
  waits: "merchant",
  budget: "all",
  gasTimes: 1n,
  prepaid: "no",
  turn: "capture",
  afterRevert: "error",
} as const satisfies PayoutKind

/** The table. Partial indexes list kinds in this order. */
export const payoutKinds = {
  /** A recipient's part of a payment. */
  share: outOfDeposit,
  /** What a deposit owes its owner. */
  sweep: outOfDeposit,
  /** A payment that goes back to its payer. */
  return: { ...outOfDeposit, hasApproval: true },
  /** A payer's authorization for a checkout. */
  authorize: { ...ofPayer, isPublic: true, locksSession: true },
  /** An agent's authorization (x402). */
  settle: { ...ofPayer, afterRevert: "ordinary", isPublic: true, isBatched: true },
  batch: { ...ofPayer, turn: undefined, isBatch: true },
  /** The escrow contract's `authorize`, a name that gasless payments use already. */
  reserve: { ...ofPayer, gasTimes: 2n, isReservation: true, gasOfKey: 500_000n },
  capture: { ...ofMerchant, prepaid: "first", screensBoth: true },
  /** Gives back what is reserved. */
  void: { ...ofMerchant, budget: "free", prepaid: "each", turn: "release", movesRest: true },
  refund: { ...ofMerchant, moneyOf: "merchant", turn: "refund" },
  /** Writes the roots of receipts, or the key that signs them, to the chain. Its merchant is the one with the first of them. */
  anchor: { ...outOfDeposit, moneyOf: "nobody", budget: "free", afterRevert: "error" },
} as const satisfies Record<string, PayoutKind>

export type PayoutKindName = keyof typeof payoutKinds
