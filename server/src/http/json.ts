/**
 * Parses JSON bodies once and strictly: numbers keep their text, and values that a database or a prototype can't hold
 * are refused.
 */
import { invalid } from "../errors.ts"

/** The texts of numbers, by the object that contains them: a double can't represent "33.333333" exactly. */
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
 * Levels of objects and lists. Far below the depth at which recursion over a body fails: at about 2,000 levels the
 * parser still works, but the code after it overflows the stack.
 */
const MAX_DEPTH = 100

/** Text that Postgres can't store: NUL (22021) and lone surrogates (22P05). */
export const isStorable = (text: string): boolean => !text.includes("\0") && text.isWellFormed()

/** The fault of such text, as a clause about its field. */
export const NOT_STORABLE = "contains a NUL character or half of a surrogate pair; remove it"

/** Parses a JSON body. Throws a `VALIDATION_ERROR` that says what is wrong with it. An empty body is undefined. */
export function parseJson(text: string): unknown {
  if (text === "") return undefined
  const tooDeep = () => invalid("", `must be nested at most ${MAX_DEPTH} levels deep`)
  // The depth of each object; innermost objects come first.
  const depths = new Map<unknown, number>()
  // The reviver knows only the last part of a path, so the path of the first fault is searched for afterwards.
  let fault: { holder: object; key: string; message: string } | undefined
  try {
    const body = JSON.parse(text, function (this: object, key: string, value: unknown, context?: { source?: string }) {
      if (key === "__proto__") throw invalid("", "must not have a field named __proto__")
      if (!isStorable(key) || (typeof value === "string" && !isStorable(value)))
        fault ??= { holder: this, key, message: NOT_STORABLE }
      if (typeof value === "object" && value !== null) {
        const depth = (depths.get(value) ?? 0) + 1
        if (depth > MAX_DEPTH) throw tooDeep()
        depths.set(this, Math.max(depth, depths.get(this) ?? 0))
      }
      // `JSON.stringify` would turn it into null.
      if (value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY)
        fault ??= { holder: this, key, message: "is too large for a JSON number: send it in quotes" }
      if (typeof value === "number" && context?.source) {
        const texts = written.get(this) ?? {}
        texts[key] = context.source
        written.set(this, texts)
      }
      return value
    } as (key: string, value: unknown) => unknown)
    if (fault) throw invalid([...(pathTo(body, fault.holder) ?? []), fault.key].join("."), fault.message)
    return body
  } catch (error) {
    if (error instanceof SyntaxError) throw invalid("", `is not valid JSON: ${error.message}`)
    if (error instanceof RangeError) throw tooDeep()
    throw error
  }
}

/** The names and indexes from `value` to an object in it; undefined where it does not contain the object. */
function pathTo(value: unknown, sought: object): string[] | undefined {
  if (value === sought) return []
  if (typeof value !== "object" || value === null) return undefined
  for (const [key, inner] of Object.entries(value)) {
    const rest = pathTo(inner, sought)
    if (rest) return [key, ...rest]
  }
  return undefined
}
