/**
 * Computes which transfers a payment still needs. Pure.
 *
 * Glossary: a *payout*, a row of `payouts`, is one transfer out of one deposit, made once. A *transaction attempt*, in
 * short an attempt, is a signed transaction for it; all attempts of a payout share one nonce, so at most one is mined.
 * A *share* is a recipient's part of a payment. A *sweep* moves what has no other recipient to the merchant. A *book*
 * holds what came into a deposit and what is promised out of it.
 */

/**
 * Returns what each share gets from a deposit that has `available`, in order. If that is not enough, the last shares
 * get less, or nothing. Amounts are base units, none negative.
 */
export function drawShares(needed: readonly bigint[], available: bigint): bigint[] {
  let left = available
  return needed.map(need => {
    const amount = need < left ? need : left
    if (amount <= 0n) return 0n
    left -= amount
    return amount
  })
}

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS

/**
 * How long a payout that could not be made is held until the next check, in milliseconds: a minute, doubling, at most a
 * day.
 */
export const recheckMs = (checks: number): number => Math.min(MINUTE_MS * 2 ** Math.min(checks, 12), DAY_MS)

const HELD_CALL_MS = 5 * MINUTE_MS
const SECOND_MS = 1_000

/**
 * The same for a call that must be signed within `leftMs`: at most five minutes and at most a quarter of what is left,
 * so it is retried more often as its deadline comes closer; never less than a second.
 */
export const recheckBeforeMs = (checks: number, leftMs: number): number =>
  Math.max(SECOND_MS, Math.min(recheckMs(checks), HELD_CALL_MS, Math.floor(leftMs / 4)))
