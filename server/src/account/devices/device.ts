/** The rules of device sign-in (RFC 8628): codes, times, and the name of the device's key. Pure. */
import { randomInt } from "node:crypto"
import type { Mode } from "../../platform/chain/network-facts.ts"
import type { Scope } from "../../platform/http/rights.ts"

/** How long a device waits for a person's decision. */
export const DEVICE_MS = 600_000
/** The minimum number of seconds between two polls of a device, and how many seconds each early poll adds. */
export const INTERVAL_S = 5
/** A poll may come this much early, because the network can move two polls closer together. */
export const TOLERANCE_MS = 1_000
/** How long a device's key lasts. */
export const DEVICE_KEY_MS = 90 * 86_400_000
/** How many wrong codes are allowed per session, and per person within an hour. */
export const GUESSES_PER_SESSION = 5
export const GUESSES_PER_HOUR = 20
/** A wrong code is remembered for as long as a session can last. */
export const GUESS_MS = 12 * 3_600_000

/**
 * No look-alike letters, and no vowels, so that codes form no words. With ten open codes, 200 guesses hit any of them
 * with a probability of one in ten million.
 */
const LETTERS = "BCDFGHJKLMNPQRSTVWXZ"
const CODE_LETTERS = 8
const NAME_CHARACTERS = 200

/** Generates a code for a person to type: 34 random bits, protected by the guess limits. */
export const newUserCode = (): string =>
  Array.from({ length: CODE_LETTERS }, () => LETTERS[randomInt(LETTERS.length)]).join("")

/** A typed code in the form in which it was generated; undefined if it is malformed. */
export function typedCode(text: unknown): string | undefined {
  if (typeof text !== "string" || text.length > 64) return undefined
  const code = text.replaceAll(/[\s-]/g, "").toUpperCase()
  return new RegExp(`^[${LETTERS}]{${CODE_LETTERS}}$`).test(code) ? code : undefined
}

/** The scopes of a device that requests none. */
export const defaultScopes = (mode: Mode): Scope[] =>
  mode === "sandbox" ? ["read", "webhooks", "checkouts", "catalog"] : ["read"]

/** The name of a device's key, cut if too long. */
export const keyName = (host: string, person: string): string =>
  [...`CLI, ${host}, ${person}`].slice(0, NAME_CHARACTERS).join("")
