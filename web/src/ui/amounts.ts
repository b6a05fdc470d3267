/** Amounts for people. Pure; decimal text in and out, never a float. */

/**
 * Formats an amount for a language. No digit is lost, because it formats text instead of a number.
 *
 * @example localAmount("1234.50", "de") // "1.234,50"
 */
export function localAmount(amount: string, language: string): string {
  const decimals = Math.max(2, (amount.split(".")[1] ?? "").length)
  const options = { minimumFractionDigits: 2, maximumFractionDigits: decimals }
  // Western digits in every language, because wallets show these.
  return new Intl.NumberFormat(`${language}-u-nu-latn`, options).format(amount as unknown as number)
}

/** Parses decimal text into base units. */
export function toUnits(amount: string, decimals: number): bigint {
  const [whole = "0", fraction = ""] = amount.split(".")
  return BigInt(whole + fraction.slice(0, decimals).padEnd(decimals, "0"))
}

/** Formats base units as decimal text, with at least two decimals. */
export function fromUnits(units: bigint, decimals: number): string {
  const digits = units.toString().padStart(decimals + 1, "0")
  const fraction = digits.slice(digits.length - decimals).replace(/0+$/, "")
  return `${digits.slice(0, digits.length - decimals)}.${fraction.padEnd(2, "0")}`
}

/** The start and the end of an address or a hash. */
export const short = (text: string): string => `${text.slice(0, 6)}…${text.slice(-4)}`

/**
 * Parses the amount that a payer typed, as decimal text. Undefined for anything that is not an amount above zero. Also
 * undefined for a thousand that means one with three decimals elsewhere (`1,000`, `1.000`).
 */
export function amountTyped(text: string): string | undefined {
  if (/^[1-9]\d{0,2}[.,]\d{3}$/.test(text.trim())) return undefined
  const amount = text.trim().replace(",", ".")
  return /^\d{1,7}(\.\d+)?$/.test(amount) && /[1-9]/.test(amount) ? amount : undefined
}
