/** Divides an amount without losing or creating a single base unit. */

/** The whole, in ten-thousandths of a percent. */
export const WHOLE_E4 = 1_000_000

/**
 * Divides `amount` (base units) by `percentsE4` (ten-thousandths of a percent, adding up to {@link WHOLE_E4}), in their
 * order. Each part is rounded down, and the last also gets the remainder. Throws an Error if the percentages do not add
 * up to the whole.
 *
 * @example allocate(100n, [333_333, 333_333, 333_334]) // [33n, 33n, 34n]
 */
export function allocate(amount: bigint, percentsE4: readonly number[]): bigint[] {
  const whole = percentsE4.reduce((sum, percent) => sum + percent, 0)
  if (amount < 0n || whole !== WHOLE_E4 || percentsE4.some(percent => percent < 0))
    throw new Error("the percentages that divide an amount must add up to 100")
  const parts = percentsE4.map(percent => (amount * BigInt(percent)) / BigInt(WHOLE_E4))
  const rest = amount - parts.reduce((sum, part) => sum + part, 0n)
  return parts.map((part, i) => (i === parts.length - 1 ? part + rest : part))
}
