/**
 * Parses JSON bodies once and strictly. Numbers keep their text, and values that a database, a double or a prototype
 * can't hold are refused. Free-form JSON is stored, served and signed, and nobody would notice if its digits changed.
 */
import { invalid } from "../errors.ts"

/** The texts of numbers, by the object that contains them, because a double can't represent "33.333333" exactly. */
const written = new WeakMap<object, Record<string, string>>()

/**
 * The number or string at `holder[key]` as the caller wrote it; undefined for anything else.
 *
 * @example asWritten(parseJson('{"price":1.10}'), "price") // "1.10"
 */
export function asWritten(holder: object, key: string): string | undefined {
  const value = (holder as Record<string, unknown>)[key]
  return typeof value === "string" ? value : written.get(holder)?.[key]
}

/**
 * Levels of objects and lists. Far below the depth at which recursion over a body fails: at about 2,000 levels the
 * parser still works, but later code overflows the stack.
 */
const MAX_DEPTH = 100

/** Whether Postgres can store a text: Postgres rejects NUL (22021) and lone surrogates (22P05). */
export const isStorable = (text: string): boolean => !text.includes("\0") && text.isWellFormed()

/** The fault of such text, as a clause about its field. */
export const NOT_STORABLE = "contains a NUL character or an unpaired surrogate; remove it"

/** A double always keeps a number of at most this many characters exactly, if the number has no exponent. */
const SAFE_CHARACTERS = 15
/** A double's own exponent has at most three digits. */
const NUMBER = /^-?(\d+)(?:\.(\d+))?(?:e([+-]?\d{1,5}))?$/i

/** The significant digits of a decimal number, and the power of ten of the last digit: equal for equal numbers. */
function digitsOf(decimal: string): string | undefined {
  const parts = NUMBER.exec(decimal)
  if (!parts) return undefined
  const [, whole = "", fraction = "", exponent = "0"] = parts
  const digits = `${whole}${fraction}`.replace(/^0+/, "")
  // A loop, because a regular expression anchored at the end takes quadratic time for zeros in the middle.
  let end = digits.length
  while (digits[end - 1] === "0") end--
  return end === 0
    ? "0"
    : `${digits.slice(0, end)}e${Number.parseInt(exponent, 10) - fraction.length + digits.length - end}`
}

/** Whether a double is the number that was written: writing it again gives the same digits. */
const isKept = (value: number, source: string): boolean =>
  (source.length <= SAFE_CHARACTERS && !/e/i.test(source)) || digitsOf(source) === digitsOf(`${value}`)

/** A string, and the colon after it if it is a name. */
const STRINGS = /"[^"\\]*(?:\\.[^"\\]*)*"(\s*:)?/g

/** How many names a valid JSON text has, including any that appear twice in one object. */
function countNames(text: string): number {
  let count = 0
  for (const [, colon] of text.matchAll(STRINGS)) if (colon !== undefined) count++
  return count
}

const NOT_KEPT = "must be sent as a string in quotes: as a JSON number it would lose digits"
/** Characters that nobody can see, which an error message spells out. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu

const characterName = (character: string): string =>
  `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`

/** Parses a JSON body; undefined for an empty one. Throws a `VALIDATION_ERROR` that says what is wrong with it. */
export function parseJson(text: string): unknown {
  if (text === "") return undefined
  const tooDeep = () => invalid("", `must be nested at most ${MAX_DEPTH} levels deep`)
  // The depth of each object; innermost objects come first.
  const depths = new Map<unknown, number>()
  // The reviver knows only the last part of a path, so the path of the first fault is looked up afterwards.
  let fault: { holder: object; key: string; message: string } | undefined
  // The top-level value is also revived under a name.
  let names = -1
  try {
    const body = JSON.parse(text, function (this: object, key: string, value: unknown, context?: { source?: string }) {
      if (!Array.isArray(this)) names++
      if (key === "__proto__") throw invalid("", "must not have a field named __proto__")
      if (!isStorable(key) || (typeof value === "string" && !isStorable(value)))
        fault ??= { holder: this, key, message: NOT_STORABLE }
      if (typeof value === "object" && value !== null) {
        const depth = (depths.get(value) ?? 0) + 1
        if (depth > MAX_DEPTH) throw tooDeep()
        depths.set(this, Math.max(depth, depths.get(this) ?? 0))
      }
      // `JSON.stringify` would turn infinity into null.
      if (value === Number.POSITIVE_INFINITY || value === Number.NEGATIVE_INFINITY)
        fault ??= { holder: this, key, message: "is too large for a JSON number: send it as a string in quotes" }
      if (typeof value === "number" && context?.source) {
        if (Number.isFinite(value) && !isKept(value, context.source)) fault ??= { holder: this, key, message: NOT_KEPT }
        const texts = written.get(this) ?? {}
        texts[key] = context.source
        written.set(this, texts)
      }
      return value
    } as (key: string, value: unknown) => unknown)
    // Of several such fields, a parser keeps the last, but a program that checks the request before us may read the
    // first.
    if (countNames(text) !== names) throw invalid("", "must not have the same field twice in one object")
    if (fault) throw invalid([...(pathTo(body, fault.holder) ?? []), fault.key].join("."), fault.message)
    return body
  } catch (error) {
    if (error instanceof SyntaxError)
      throw invalid("", `is not valid JSON: ${error.message.replace(INVISIBLE, characterName)}`)
    if (error instanceof RangeError) throw tooDeep()
    throw error
  }
}

/** The names and indexes from `value` to an object in it; undefined if it does not contain the object. */
function pathTo(value: unknown, sought: object): string[] | undefined {
  if (value === sought) return []
  if (typeof value !== "object" || value === null) return undefined
  for (const [key, inner] of Object.entries(value)) {
    const rest = pathTo(inner, sought)
    if (rest) return [key, ...rest]
  }
  return undefined
}
