/** A split's percentages, exactly: in ten-thousandths of a percent, as the contract divides. Pure. */

/** All of it. */
const WHOLE = 1_000_000

/** A percentage as written, in ten-thousandths; undefined where it is none, or has more than four decimals. */
export function percentE4(text: string): number | undefined {
  const [, whole, part = ""] = /^(\d{1,3})(?:[.,](\d{1,4}))?$/.exec(text.trim()) ?? []
  if (whole === undefined) return undefined
  const value = Number(`${whole}${part.padEnd(4, "0")}`)
  return value <= WHOLE ? value : undefined
}

/** Ten-thousandths as a person writes them: `33.3333`, `50`. */
export const percentText = (e4: number): string =>
  `${Math.floor(e4 / 10_000)}.${String(e4 % 10_000).padStart(4, "0")}`.replace(/\.?0+$/, "")

/** The row that gets the rest: what the others leave of the whole; below zero where they take more. */
export const restOf = (percents: readonly string[], rest: number): number =>
  WHOLE - percents.reduce((sum, text, i) => sum + (i === rest ? 0 : (percentE4(text) ?? 0)), 0)

/** What each gets of an amount in base units: rounded down, and the last also what is left, as the contract does. */
export function divide(amount: bigint, percents: readonly number[]): bigint[] {
  const parts = percents.map(each => (amount * BigInt(each)) / BigInt(WHOLE))
  const left = amount - parts.reduce((sum, part) => sum + part, 0n)
  return parts.map((part, i) => (i === parts.length - 1 ? part + left : part))
}
