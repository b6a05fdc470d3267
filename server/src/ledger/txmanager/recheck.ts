/** Decides when to recheck a payout that could not be made. Pure. */
import { backoffMs } from "../../platform/backoff.ts"

/** The due time of a payout that is held until a person retries it. */
export const NEVER = new Date("9998-01-01T00:00:00Z")

const MINUTE_MS = 60_000
const DAY_MS = 24 * 60 * MINUTE_MS

/**
 * Returns how long a payout that could not be made is held until the next check, in milliseconds. The hold is a minute
 * at first, and doubles up to a day.
 */
export const recheckMs = (checks: number): number => backoffMs(MINUTE_MS, checks, DAY_MS)

const HELD_CALL_MS = 5 * MINUTE_MS
const SECOND_MS = 1_000

/**
 * Returns the same for a call that must be signed within `leftMs`. The hold is at most five minutes and a quarter of
 * that time, but at least a second. So the call is retried more often as its deadline approaches.
 */
export const recheckBeforeMs = (checks: number, leftMs: number): number =>
  Math.max(SECOND_MS, Math.min(recheckMs(checks), HELD_CALL_MS, Math.floor(leftMs / 4)))
