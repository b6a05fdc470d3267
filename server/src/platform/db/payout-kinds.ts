/**
 * The kinds of payouts, one row for each, with every difference that matters to the code that picks, budgets, signs and
 * ends them. A new kind is a row here, a file that makes its payouts, and a migration for the constraints of
 * `payouts.kind`; `txmanager/new-kind.test.ts` adds one.
 */

/**
 * The queues, each with its own wallet: payouts out of deposits, calls that payers or merchants asked for, and
 * transactions that have 0G store receipts.
 */
export type LaneName = "payout" | "relay" | "storage"

/** A kind of payout. An omitted flag is false. */
export interface PayoutKind {
  lane: LaneName
  /** Whose money the call moves: that of a deposit, of the signing payer, of an escrow, or of a merchant's wallet. */
  moneyOf: "deposit" | "payer" | "escrow" | "merchant" | "nobody"
  /**
   * Who waits for the payout, and so how long it is held if it can't be made now. If a payer waits, the payout is
   * cancelled immediately. If a merchant waits, the payout is held until its deadline; if a recipient waits, until it
   * can be made.
   */
  waits: "payer" | "merchant" | "recipient"
  /**
   * The payout's share of a merchant's gas budget. `half`: strangers cause the payout. `by_amount`: three quarters if
   * the amount is small, all otherwise. `all`. `free`: the payout counts against no merchant's budget.
   */
  budget: "half" | "by_amount" | "all" | "free"
  /**
   * How many times the payout's gas counts toward the half for strangers' relays and toward the total: a reservation
   * also counts for the call that ends it.
   */
  gasTimes: 1n | 2n
  /**
   * Whether a reservation already covers the payout's gas in the total of all merchants: for each such call, or only for
   * a payment's first.
   */
  prepaid: "no" | "first" | "each"
  /**
   * The payout's turn if more payouts are due than fit, in the order of these names. `refund`: one refund of a merchant
   * at a time. Undefined if merchants take no turns.
   */
  turn: "buyer" | "release" | "capture" | "refund" | undefined
  /**
   * What happens after a revert. `again`: the lane makes another payout. `error`: the revert is logged as an error.
   * `ordinary`: the revert is logged as a warning.
   */
  afterRevert: "again" | "error" | "ordinary"
  /** The payout's signature is public after the broadcast: anyone may submit it, immediately or later. */
  isPublic?: true
  /** Several payouts of one merchant share a transaction. */
  isBatched?: true
  /** The transaction that executes several payouts. The transaction never counts in addition to its payouts. */
  isBatch?: true
  /** The end of the payout locks the session that the payout pays, so the end is written in a separate transaction. */
  locksSession?: true
  /** The payout moves everything that is left, which may be more than its row says. */
  movesRest?: true
  /** The payout's recipient is screened as well as the payer, who is somebody else. */
  screensBoth?: true
  /** The payout sells something for which no deposit receives a payment. */
  isReservation?: true
  /** The payout may take money that waits for the merchant's decision, using the approval in its calldata. */
  hasApproval?: true
  /** The payout's call sends ether from its wallet, as much as its row says. No other kind sends any. */
  sendsEther?: true
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
  /** The money that a deposit owes its owner. */
  sweep: outOfDeposit,
  /** A payment that goes back to its payer. */
  return: { ...outOfDeposit, hasApproval: true },
  /** A payer's authorization for a checkout. */
  authorize: { ...ofPayer, isPublic: true, locksSession: true },
  /** An agent's authorization (x402). */
  settle: { ...ofPayer, afterRevert: "ordinary", isPublic: true, isBatched: true },
  batch: { ...ofPayer, turn: undefined, isBatch: true },
  /** Calls the escrow contract's `authorize`; gasless payments already use that name. */
  reserve: { ...ofPayer, gasTimes: 2n, isReservation: true, gasOfKey: 500_000n },
  capture: { ...ofMerchant, prepaid: "first", screensBoth: true },
  /** Gives back the reserved money. */
  void: { ...ofMerchant, budget: "free", prepaid: "each", turn: "release", movesRest: true },
  refund: { ...ofMerchant, moneyOf: "merchant", turn: "refund" },
  /**
   * Writes the roots of receipts, or their signing key, to the chain. The payout's merchant is the one with the first
   * root.
   */
  anchor: { ...outOfDeposit, moneyOf: "nobody", budget: "free", afterRevert: "error" },
  /**
   * Has 0G store a file of receipts. The gas is paid in another chain's currency, so it counts in no budget and no
   * total.
   */
  store: {
    lane: "storage",
    moneyOf: "nobody",
    waits: "recipient",
    budget: "free",
    gasTimes: 1n,
    prepaid: "each",
    turn: undefined,
    afterRevert: "error",
    sendsEther: true,
  },
} as const satisfies Record<string, PayoutKind>

export type PayoutKindName = keyof typeof payoutKinds
