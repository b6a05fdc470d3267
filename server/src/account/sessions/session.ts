/** The rules of a session: how long it lasts, and which requests may use it. Pure. */
import { hash, timingSafeEqual } from "node:crypto"
import type { IncomingHttpHeaders } from "node:http"
import type { Row } from "../../platform/db/schema.ts"

/** A session ends after this long without use. */
export const IDLE_MS = 3_600_000
/** A session ends this long after it started, however much it is used. */
export const LONGEST_MS = 12 * 3_600_000
/** How long a sign-in at the identity provider may take. */
export const SIGN_IN_MS = 10 * 60_000
/** How many sessions a person may have at a time. Starting another session ends the oldest. */
export const SESSIONS_PER_PERSON = 50
/** The length of a secret in characters: 256 random bits. */
export const SECRET_CHARACTERS = 43

/** The stored hash of a cookie's secret. A fast hash is enough, because nobody can try 2²⁵⁶ values. */
export const hashOf = (secret: string): string => hash("sha256", secret, "hex")

/** Whether two hashes are equal, compared in constant time. */
export const isSameHash = (one: string, other: string): boolean =>
  timingSafeEqual(Buffer.from(one, "hex"), Buffer.from(other, "hex"))

/** When a session ends if it stays unused. */
export const endOf = ({ last_seen_at, expires_at }: Pick<Row<"sessions">, "last_seen_at" | "expires_at">): Date =>
  new Date(Math.min(last_seen_at.getTime() + IDLE_MS, expires_at.getTime()))

/**
 * Whether a page of the console itself sent a request with a session's cookie. A request without `Sec-Fetch-Site`
 * counts as a request from another site. A request from the address bar also counts as one from another site, because a
 * redirect from another site looks the same.
 */
export const isFromConsole = ({ "sec-fetch-site": site }: IncomingHttpHeaders): boolean => site === "same-origin"
