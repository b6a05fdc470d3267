/** Computes what a transaction pays for inclusion in a block. Pure; all in wei per unit of gas. */
import { hexNumber } from "./rpc.ts"

export interface Fees {
  maxFee: bigint
  tip: bigint
}

/**
 * Returns the fees for a simulation: those that will be signed. Without fees, a contract sees a gas price of 0, and may
 * behave differently than in the real transaction. No fees are returned if `balance` (in wei) is too low, because nodes
 * would then refuse to simulate.
 */
export const trialFees = ({ maxFee, tip }: Fees, gas: bigint, balance: bigint) =>
  balance < gas * maxFee ? {} : { maxFeePerGas: hexNumber(maxFee), maxPriorityFeePerGas: hexNumber(tip) }

/** The current price on the network. */
export interface Market {
  baseFee: bigint
  tip: bigint
}

/**
 * The fees of a first attempt; undefined if the market is above `cap`. Twice the base fee keeps the attempt valid for
 * six full blocks.
 */
export function firstFees({ baseFee, tip }: Market, cap: bigint): Fees | undefined {
  if (baseFee + tip > cap) return undefined
  return { maxFee: least(2n * baseFee + tip, cap), tip }
}

/**
 * The fees of an attempt that replaces another. Both fees rise by an eighth, rounded up (nodes refuse less than a
 * tenth), and to at least 0.001 gwei and the market price. Undefined if that is above `cap`.
 */
export function raisedFees(before: Fees, { baseFee, tip }: Market, cap: bigint): Fees | undefined {
  const maxFee = most(raised(before.maxFee), least(2n * baseFee + tip, cap))
  const raisedTip = most(raised(before.tip), tip)
  if (maxFee > cap || raisedTip > maxFee) return undefined
  return { maxFee, tip: raisedTip }
}

/** A bid of zero, as a lying endpoint may suggest, would stay zero after any number of raises by an eighth. */
const MIN_RAISED = 1_000_000n

const raised = (fee: bigint): bigint => most((fee * 9n + 7n) / 8n, MIN_RAISED)
const least = (a: bigint, b: bigint): bigint => (a < b ? a : b)
const most = (a: bigint, b: bigint): bigint => (a > b ? a : b)
