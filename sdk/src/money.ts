/** Amounts: text with a point, and whole base units. USDC has 6 decimals. */

const DECIMALS = 6

/**
 * The base units of an amount: `toUnits("19.90")` is `19900000n`. A number is accepted if its text is exact. Throws a
 * RangeError for too many decimals, for a number with over 15 digits, and for text that is not an amount.
 */
export function toUnits(amount: string | number, decimals = DECIMALS): bigint {
  const text = typeof amount === "number" ? textOf(amount) : amount
  const [, minus, whole = "", fraction = ""] = /^(-?)(\d{1,60})(?:\.(\d{1,60}))?$/.exec(text) ?? []
  if (whole === "") throw new RangeError(`${JSON.stringify(amount)} is not an amount, such as "19.90"`)
  const significant = fraction.replace(/0+$/, "")
  if (significant.length > decimals) throw new RangeError(`${text} has more than ${decimals} decimals`)
  const units = BigInt(whole + significant.padEnd(decimals, "0"))
  return minus ? -units : units
}

/** The amount of base units, with at least two decimals: `fromUnits(19_900_000n)` is `"19.90"`. */
export function fromUnits(units: bigint, decimals = DECIMALS): string {
  const digits = `${units < 0n ? -units : units}`.padStart(decimals + 1, "0")
  const whole = digits.slice(0, digits.length - decimals)
  const fraction = digits
    .slice(digits.length - decimals)
    .replace(/0+$/, "")
    .padEnd(Math.min(2, decimals), "0")
  return `${units < 0n ? "-" : ""}${whole}${fraction === "" ? "" : `.${fraction}`}`
}

/** The sum of amounts, exact: `add("0.10", "0.20")` is `"0.30"`. */
export const add = (...amounts: readonly string[]): string =>
  fromUnits(
    amounts.reduce((sum, amount) => sum + toUnits(amount, 18), 0n),
    18,
  )

/** A double keeps 15 digits. */
function textOf(amount: number): string {
  const text = `${amount}`
  if (!Number.isFinite(amount) || /e/i.test(text) || text.replace(/[-.]|^0+/g, "").length > 15)
    throw new RangeError(`${text} is not exact as a number: pass the amount as text`)
  return text
}
