/**
 * Which transfers a payment still needs. Pure.
 *
 * Glossary: a *payout*, a row of `payouts`, is one transfer out of one deposit, made once. A *transaction attempt*, in short an
 * attempt, is a signed transaction for it; all attempts of a payout share one nonce, so at most one is mined. A *share* is a
 * recipient's part of a payment. A *sweep* moves what has no other recipient to the merchant. A *book* holds what came into a
 * deposit and what is promised out of it.
 */

/** A payment's money in a deposit, less what is already promised out of it, in base units. */
export interface Source {
  depositId: bigint
  available: bigint
}

export interface Draw {
  share: number
  depositId: bigint
  amount: bigint
}

/**
 * Draws what each share still needs from the deposits, in order. A share that one deposit can't fill continues in the next;
 * what no source holds is left out. Amounts are base units.
 */
export function drawShares(needed: readonly bigint[], sources: readonly Source[]): Draw[] {
  const draws: Draw[] = []
  const left = sources.map(source => ({ ...source }))
  for (const [share, need] of needed.entries()) {
    let missing = need
    for (const source of left) {
      const amount = missing < source.available ? missing : source.available
      if (amount <= 0n) continue
      draws.push({ share, depositId: source.depositId, amount })
      source.available -= amount
      missing -= amount
    }
  }
  return draws
}

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS

/** How long a payout that could not be made waits until it is checked again, in milliseconds: a minute, doubling, at most a day. */
export const recheckMs = (checks: number): number => Math.min(MINUTE_MS * 2 ** Math.min(checks, 12), DAY_MS)
