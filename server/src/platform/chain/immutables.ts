/** Compares deployed code with the compiler's output. Pure. */
import { type Hex, keccak256 } from "viem"

/**
 * Returns the immutable words of deployed code, in the order of their declaration; undefined if the code is not that
 * contract.
 */
export function immutablesOf(
  code: string | undefined,
  { code: template, immutables }: { code: Hex; immutables: readonly (readonly number[])[] },
): Hex[] | undefined {
  if (code?.length !== template.length) return undefined
  const wordAt = (offset: number) => code.slice(2 + 2 * offset, 66 + 2 * offset)
  const cleared = immutables
    .flat()
    .reduce((text, offset) => `${text.slice(0, 2 + 2 * offset)}${"0".repeat(64)}${text.slice(66 + 2 * offset)}`, code)
  if (keccak256(cleared as Hex) !== keccak256(template)) return undefined
  const words = immutables.map(offsets => [...new Set(offsets.map(wordAt))])
  // An immutable has the same value at each place where the code reads it.
  return words.every(each => each.length === 1) ? words.map(([word]) => `0x${word}` as Hex) : undefined
}
