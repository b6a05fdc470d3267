/**
 * Which transfers a payment still needs. Pure.
 *
 * Glossary: an *intent* is one transfer out of one deposit, to be made once; an *attempt* is signed bytes for it, of which at
 * most one is ever mined, as all of an intent have one nonce; a *share* is a recipient's part of a payment; a *sweep* takes
 * to the merchant what has no other recipient; a *book* holds what came into a deposit and what is promised out of it.
 */

/** Money of the payment in a deposit, less what is already promised out of it. */
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
 * Draws what each share still needs from the deposits, in order; a share that one deposit can't fill goes on in the next.
 * What the sources don't hold is left out.
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

/** How long until an intent that could not be assigned is looked at again: a minute, doubling, at most a day. */
export const recheckMs = (checks: number): number => Math.min(MINUTE_MS * 2 ** Math.min(checks, 12), DAY_MS)
