/** The rules of a device's sign-in (RFC 8628): its codes, its times, and the name of the key that it gets. Pure. */
import { randomInt } from "node:crypto"
import type { Mode } from "../../platform/chain/network-facts.ts"
import type { Scope } from "../../platform/http/rights.ts"

/** How long a device waits for its person at most. */
export const DEVICE_MS = 600_000
/** How long a device has to wait between two questions, and what is added each time that it does not. */
export const INTERVAL_S = 5
/** A question may come this much too early: the network makes two of them come closer together. */
export const TOLERANCE_MS = 1_000
/** How long its key lasts. */
export const DEVICE_KEY_MS = 90 * 86_400_000
/** How many wrong codes may be typed in a session, and by a person in an hour. */
export const GUESSES_PER_SESSION = 5
export const GUESSES_PER_HOUR = 20
/** A wrong code is remembered as long as a session can last. */
export const GUESS_MS = 12 * 3_600_000

/** Letters that no one takes for others, and no vowels: no words. Two hundred guesses at ten open codes hit one in ten million times. */
const LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
const CODE_LETTERS = 8
const NAME_CHARACTERS = 200

/** A code for a person to type: 34 random bits, which the limits of guesses protect. */
export const newUserCode = (): string =>
  Array.from({ length: CODE_LETTERS }, () => LETTERS[randomInt(LETTERS.length)]).join("")

/** The code that a person has typed, in the form in which it was made; undefined for what can't be one. */
export function typedCode(text: unknown): string | undefined {
  if (typeof text !== "string" || text.length > 64) return undefined
  const code = text.replaceAll(/[\s-]/g, "").toUpperCase()
  return new RegExp(`^[${LETTERS}]{${CODE_LETTERS}}$`).test(code) ? code : undefined
}

/** The scopes of a device that names none. */
export const defaultScopes = (mode: Mode): Scope[] =>
  mode === "sandbox" ? ["read", "webhooks", "checkouts", "catalog"] : ["read"]

/** The name of a device's key; a long one is cut. */
export const keyName = (host: string, person: string): string =>
  [...`CLI, ${host}, ${person}`].slice(0, NAME_CHARACTERS).join("")
