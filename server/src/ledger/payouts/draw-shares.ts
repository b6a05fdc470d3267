/**
 * Computes which transfers a payment still needs. Pure.
 *
 * Glossary: a *payout*, a row of `payouts`, is one transfer out of one deposit, made once. A *transaction attempt*, or
 * attempt, is a signed transaction for a payout. All attempts of a payout share one nonce, so at most one attempt is
 * mined. A *share* is a recipient's part of a payment. A *sweep* moves money without another recipient to the merchant.
 * A *book* records what came into a deposit and what is promised out of it.
 */

/**
 * Returns what each share gets from a deposit with `available` base units, in order. If the money is too little, the
 * last shares get less, or nothing. No amount is negative.
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
