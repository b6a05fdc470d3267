/**
 * JSON bodies, read once and strictly: numbers keep their text, and what a database or a prototype can't hold is refused.
 */
import { invalid } from "../errors.ts"

/** The texts of numbers, by the object that holds them: a double can't say what "33.333333" was. */
const written = new WeakMap<object, Record<string, string>>()

/**
 * The number or string at `holder[key]` as the caller wrote it, undefined for anything else.
 *
 * @example asWritten(parseJson('{"price":1.10}'), "price") // "1.10"
 */
export function asWritten(holder: object, key: string): string | undefined {
  const value = (holder as Record<string, unknown>)[key]
  return typeof value === "string" ? value : written.get(holder)?.[key]
}

/**
 * Levels of objects and lists. Far below what any recursion over a body stands: at some 2,000 levels the parser still
 * manages, and what comes after it runs out of stack.
 */
const MAX_DEPTH = 100

/** Text that Postgres can't store: NUL (22021) and lone surrogates (22P05). */
export const isStorable = (text: string): boolean => !text.includes("\0") && text.isWellFormed()

/** What is wrong with other text, as a clause about its field. */
export const NOT_STORABLE = "contains a NUL character or half of a surrogate pair; remove it"

/** Parses a JSON body; a `VALIDATION_ERROR` says what is wrong with it. An empty body is undefined. */
export function parseJson(text: string): unknown {
  if (text === "") return undefined
  const tooDeep = () => invalid("", `must be nested at most ${MAX_DEPTH} levels deep`)
  // Of each object, how deep it is; the innermost come first.
  const depths = new Map<unknown, number>()
  try {
    return JSON.parse(text, function (this: object, key: string, value: unknown, context?: { source?: string }) {
      if (key === "__proto__") throw invalid("", "must not have a field named __proto__")
      if (!isStorable(key) || (typeof value === "string" && !isStorable(value))) throw invalid(key, NOT_STORABLE)
      if (typeof value === "object" && value !== null) {
        const depth = (depths.get(value) ?? 0) + 1
        if (depth > MAX_DEPTH) throw tooDeep()
        depths.set(this, Math.max(depth, depths.get(this) ?? 0))
      }
      // It would be kept as null.
      if (value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY)
        throw invalid(key, "is too large for a JSON number: send it in quotes")
      if (typeof value === "number" && context?.source) {
        const texts = written.get(this) ?? {}
        texts[key] = context.source
        written.set(this, texts)
      }
      return value
    } as (key: string, value: unknown) => unknown)
  } catch (error) {
    if (error instanceof SyntaxError) throw invalid("", `is not valid JSON: ${error.message}`)
    if (error instanceof RangeError) throw tooDeep()
    throw error
  }
}
