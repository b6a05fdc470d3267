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
