/** Folds grants into access. Pure. */

/** The time that means "forever" in all answers. */
export const FOREVER = new Date("9999-12-31T23:59:59.999Z")

/** A grant that was not revoked. `durationS` null means forever; `calls` null means unlimited calls within its time. */
export interface LiveGrant {
  grantedAt: Date
  durationS: bigint | null
  calls: number | null
  callsUsed: number
}

/** What a list of grants adds up to. */
export interface Fold {
  /** When the continuous access started, and when it ends; null if there is no grant. */
  since: Date | null
  expiresAt: Date | null
  /** The remaining calls; null while they are unlimited. */
  callsLeft: number | null
  /**
   * `callsKept`: the remaining calls once they are counted. `freeUntil`: the time until which calls are not counted;
   * null if they are counted.
   */
  callsKept: number
  freeUntil: Date | null
}

const NO_GRANTS: Fold = { since: null, expiresAt: null, callsLeft: null, callsKept: 0, freeUntil: null }

/**
 * Folds these grants in grant order. Each adds its whole duration to the time that remains when it is granted,
 * whether or not earlier calls are used by then. A call stays usable during the time that its grant extended; when
 * all time has run out, remaining calls are lost. Calls count only after the time of a grant without a number of
 * calls (its own time and the time left before it). `callsLeft` is null until then, and the grants must be folded
 * again afterwards. `before` is the fold of all earlier grants, so only the newest grants of a payer with thousands
 * need to be folded.
 *
 * @example two grants of 300 s and one call at 12:00:00 and 12:01:00 give two calls until 12:10:00
 */
export function foldGrants(grants: readonly LiveGrant[], now: Date, before: Fold = NO_GRANTS): Fold {
  let since = before.since?.getTime() ?? null
  let end = before.expiresAt?.getTime() ?? Number.NEGATIVE_INFINITY
  let callsKept = before.callsKept
  let freeUntil = before.freeUntil?.getTime() ?? Number.NEGATIVE_INFINITY
  for (const { grantedAt, durationS, calls, callsUsed } of grants) {
    const at = grantedAt.getTime()
    if (end < at) {
      since = at
      end = at
      callsKept = 0
    }
    end = Math.min(durationS === null ? FOREVER.getTime() : end + Number(durationS) * 1_000, FOREVER.getTime())
    if (calls === null) freeUntil = end
    else callsKept += calls - callsUsed
  }
  if (since === null) return NO_GRANTS
  const isFree = freeUntil === end || freeUntil > now.getTime()
  return {
    since: new Date(since),
    expiresAt: new Date(end),
    callsLeft: isFree ? null : callsKept,
    callsKept,
    freeUntil: Number.isFinite(freeUntil) ? new Date(freeUntil) : null,
  }
}
