/** Pieces of wire contracts that every feature uses. */
import { type Static, type TProperties, type TSchema, Type } from "typebox"

/** An object that takes no other field: a misspelt name must not pass in silence. The example must be good as it is. */
export const Strict = <T extends TProperties>(properties: T, example?: object) =>
  Type.Object(properties, { additionalProperties: false, ...(example ? { examples: [example] } : {}) })

/** The same schema in words that fit its place. */
export const Described = <T extends TSchema>(schema: T, description: string): T => ({ ...schema, description })

/** A value, or null to say that there is none; one schema with two types, so that a fault is told once. */
export const Nullable = <T extends TSchema>(schema: T) =>
  Type.Unsafe<Static<T> | null>({ ...schema, type: [(schema as { type?: unknown }).type, "null"] })

export const Timestamp = Type.String({ format: "date-time", examples: ["2026-01-31T12:00:00.000Z"] })

/** What text must be, by the pattern that it must have: not in the schema, whose description its place may replace. */
const patternWords = new Map<string, string>()

/** What text of this pattern must be, as words that complete "must be …"; undefined for a pattern that was not registered. */
export const wordsOfPattern = (pattern: string): string | undefined => patternWords.get(pattern)

/**
 * Registers a pattern's words, which begin with a noun, a number or an article, and answers the pattern. Throws when it has
 * other words already: what differs by place belongs into the description of the place.
 */
export function patternOf(pattern: string, words: string): string {
  const text = words.charAt(0).toLowerCase() + words.slice(1)
  const before = patternWords.get(pattern)
  if (before !== undefined && before !== text) throw new Error(`${pattern} is "${before}" already, not "${text}"`)
  patternWords.set(pattern, text)
  return pattern
}

/** Text of a form. `words` complete "must be …" for whoever sends another, and describe it where its place says no more. */
export const Matching = (pattern: string, words: string, options: { maxLength?: number; examples?: string[] } = {}) =>
  Type.String({ pattern: patternOf(pattern, words), description: words, ...options })

/** A name: 1 to 200 characters, one of them at least no space. */
export const Name = Matching("\\S", "Text that is not blank", { maxLength: 200 })

/** Money in responses: a decimal string with at least two decimals. */
export const Money = Type.String({ examples: ["5.00"] })

/** Money in requests, taken exactly as written. */
export const MoneyInput = Type.Unsafe<number | string>({
  type: ["number", "string"],
  exclusiveMinimum: 0,
  maximum: 1_000_000,
  maxLength: 32,
  description: "A JSON number or a decimal string in whole tokens, above 0 and at most 1,000,000",
})

/** An address whose form the schema checks; its checksum is checked where it is read. */
export const AddressInput = Matching("^0x[0-9a-fA-F]{40}$", "An address: 0x and 40 hexadecimal digits")

export const AddressText = Type.String({ examples: ["0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"] })
export const HashText = Type.String({ examples: [`0x${"5f".repeat(32)}`] })

/** `limit` and `offset` of every list. */
export const Page = Type.Object({
  limit: Type.Integer({ minimum: 1, maximum: 1_000, default: 100, description: "How many at most" }),
  offset: Type.Integer({ minimum: 0, maximum: 2_147_483_647, default: 0, description: "How many to pass over" }),
})
export type Page = Static<typeof Page>
