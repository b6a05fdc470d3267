/** Amounts: bigint base units internally, decimal strings at the edges, and never a float in between. */

/** The most that one payment may ask for, in whole tokens. */
const MAX_WHOLE = 1_000_000n

/** A double that is not exact, such as 13.049999999999999, is written with at least this many digits. */
const NOISE_DIGITS = 15

/** Text that is not a valid amount; `message` says why, for the caller. */
export class AmountError extends Error {}

/**
 * Parses a decimal text into base units, exactly as written. Throws an {@link AmountError} for signs, exponents,
 * leading zeros, more decimals than the token has, zero, or more than 1,000,000 whole tokens.
 *
 * @example parseAmount("4.99", 6) // 4990000n
 */
export function parseAmount(text: string, decimals: number): bigint {
  const amount = parseMovedAmount(text, decimals)
  if (amount > MAX_WHOLE * 10n ** BigInt(decimals)) throw new AmountError("must be at most 1,000,000")
  return amount
}

/**
 * Parses a decimal text like {@link parseAmount}, but up to 30 digits before the point: a payout may move more than one
 * payment may ask for.
 */
export function parseMovedAmount(text: string, decimals: number): bigint {
  const match = /^(0|[1-9]\d{0,29})(?:\.(\d{1,30}))?$/.exec(text)
  if (!match)
    throw new AmountError(
      'must be a plain decimal number such as 5 or "4.99", without a sign, an exponent or leading zeros',
    )
  const [, whole = "0", fraction = ""] = match
  if (fraction.length > decimals) {
    const isNoise = whole.length + fraction.length >= NOISE_DIGITS
    const hint = isNoise
      ? ': it looks like a rounding error; compute it exactly and send it as text, such as "4.99"'
      : ""
    throw new AmountError(`has more than ${decimals} decimals, the most that the token has${hint}`)
  }
  const amount = BigInt(whole + fraction.padEnd(decimals, "0"))
  if (amount === 0n) throw new AmountError("must be above 0")
  return amount
}

/**
 * Formats base units as a decimal text, with at least two and at most `decimals` decimals, nothing rounded.
 *
 * @example formatAmount(5_000_000n, 6) // "5.00"
 * @example formatAmount(1_000n, 6) // "0.001"
 */
export function formatAmount(amount: bigint, decimals: number): string {
  const sign = amount < 0n ? "-" : ""
  const digits = (amount < 0n ? -amount : amount).toString().padStart(decimals + 1, "0")
  const whole = digits.slice(0, digits.length - decimals)
  const fraction = digits.slice(digits.length - decimals).replace(/0+$/, "")
  return `${sign}${whole}.${fraction.padEnd(2, "0")}`
}

/** The properties of a token that its amounts need. */
export interface AmountToken {
  decimals: number
  symbol: string
}

/**
 * Reads the amount written at `path`, in base units. Returns a fault if the text is not a valid amount. Also returns a
 * fault if the amount is below `least` whole tokens for each of the `recipients` that share it, because each gets its
 * own transfer.
 */
export function readAmount(
  path: string,
  written: string | undefined,
  token: AmountToken,
  least: string,
  recipients = 1,
): bigint | { path: string; message: string } {
  try {
    const amount = parseAmount(written ?? "", token.decimals)
    const min = parseAmount(least, token.decimals) * BigInt(recipients)
    if (amount >= min) return amount
    const why = recipients > 1 ? ` with a split of ${recipients}` : ""
    return { path, message: `must be at least ${formatAmount(min, token.decimals)} ${token.symbol}${why}` }
  } catch (error) {
    if (error instanceof AmountError) return { path, message: error.message }
    throw error
  }
}
