/** Parts of wire contracts that every feature uses. */
import { type Static, type TProperties, type TSchema, Type } from "typebox"

/**
 * An object that accepts no other field, so that a misspelt name is never ignored silently. The example must be valid
 * itself.
 */
export const Strict = <T extends TProperties>(properties: T, example?: object) =>
  Type.Object(properties, { additionalProperties: false, ...(example ? { examples: [example] } : {}) })

/** The same schema with another description. */
export const Described = <T extends TSchema>(schema: T, description: string): T => ({ ...schema, description })

/** A value, or null for none. The result is one schema with two types, so that a fault is reported once. */
export const Nullable = <T extends TSchema>(schema: T) =>
  Type.Unsafe<Static<T> | null>({ ...schema, type: [(schema as { type?: unknown }).type, "null"] })

export const Timestamp = Type.String({ format: "date-time", examples: ["2026-01-31T12:00:00.000Z"] })

/**
 * What text must be, keyed by its pattern. The text is kept outside the schema, because a field may replace the
 * schema's description.
 */
const patternWords = new Map<string, string>()

/**
 * What text with this pattern must be, as words that complete "must be …"; undefined for a pattern that was not
 * registered.
 */
export const wordsOfPattern = (pattern: string): string | undefined => patternWords.get(pattern)

/**
 * Registers the words for a pattern and returns the pattern. The words start with a noun, a number or an article.
 * Throws if the pattern already has other words: anything that differs between fields belongs in their descriptions.
 */
export function patternOf(pattern: string, words: string): string {
  const text = words.charAt(0).toLowerCase() + words.slice(1)
  const before = patternWords.get(pattern)
  if (before !== undefined && before !== text) throw new Error(`${pattern} is "${before}" already, not "${text}"`)
  patternWords.set(pattern, text)
  return pattern
}

/**
 * Text that matches a pattern. `words` complete "must be …" in the error, and describe the field unless it has a
 * description of its own.
 */
export const Matching = (pattern: string, words: string, options: { maxLength?: number; examples?: string[] } = {}) =>
  Type.String({ pattern: patternOf(pattern, words), description: words, ...options })

/** A name: 1 to 200 characters, at least one of them not a space. */
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

/** An address. The schema checks the form; the code that reads the address checks its checksum. */
export const AddressInput = Matching("^0x[0-9a-fA-F]{40}$", "An address: 0x and 40 hexadecimal digits")

export const AddressText = Type.String({ examples: ["0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913"] })
export const HashText = Type.String({ examples: [`0x${"5f".repeat(32)}`] })

/** Search text, as it was typed. */
export const SearchText = Matching("^\\S(.{0,198}\\S)?$", "1 to 200 characters, neither the first nor the last a space")

/** The filters of catalog lists. */
export const catalogFilters = {
  active: Type.Optional(Type.Boolean({ description: "`true`: only active objects; `false`: only inactive objects" })),
  q: Type.Optional(Described(SearchText, "An id, a slug, or the start of a name; upper and lower case are equal")),
}
/** Rows of a page if the caller names no limit. */
export const DEFAULT_LIMIT = 100

/** The parameters of every list. */
export const Page = Type.Object({
  limit: Type.Integer({
    minimum: 1,
    maximum: 1_000,
    default: DEFAULT_LIMIT,
    description: "The maximum number of results",
  }),
  offset: Type.Integer({
    minimum: 0,
    maximum: 2_147_483_647,
    default: 0,
    description: "The number of results to skip; large numbers are slow",
  }),
  after: Type.Optional(Matching("^[A-Za-z0-9_-]{1,400}$", "The `next` of the previous page")),
})
export type Page = Omit<Static<typeof Page>, "after"> & { after?: string | undefined }

/** The fields of every list in addition to its rows. */
export const ListEnd = {
  total: Type.Integer({
    description:
      "The number of results. At most 1,500 results after this page are counted. If there are more, `totalIsLeast` is true and this is a lower bound",
  }),
  totalIsLeast: Type.Optional(Type.Literal(true, { type: "boolean", description: "Left out if `total` is exact" })),
  next: Type.Optional(
    Type.String({
      description:
        "Send it as `after`, with the same filters, to get the next page. Every page costs the same, and rows added in the meantime shift no results. Left out on the last page",
    }),
  ),
}
