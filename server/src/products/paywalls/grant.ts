/** Folds grants into access. Pure. */

/** "Forever" in the form of all answers. */
export const FOREVER = new Date("9999-12-31T23:59:59.999Z")

/** A grant that was not revoked. `durationS` null: forever. `calls` null: unlimited within its time. */
export interface LiveGrant {
  grantedAt: Date
  durationS: bigint | null
  calls: number | null
  callsUsed: number
}

/** The sum of a list of grants. */
export interface Fold {
  /** When continuous access started and when it ends; null without a grant. */
  since: Date | null
  expiresAt: Date | null
  /** The remaining calls; null while they are unlimited. */
  callsLeft: number | null
  /**
   * `callsKept`: the remaining calls once they are counted. `freeUntil`: until then they are not counted; null if they
   * are.
   */
  callsKept: number
  freeUntil: Date | null
}

const NO_GRANTS: Fold = { since: null, expiresAt: null, callsLeft: null, callsKept: 0, freeUntil: null }

/**
 * Folds these grants in grant order. Each adds its whole duration to the remaining time at its grant, whether or not
 * its call is used by then. A call stays usable during the time that its grant extended; when all time has run out,
 * remaining calls are lost. Calls count only after the time of a grant without a number of calls (its own time and the
 * time left before it). `callsLeft` is null until then, and the grants must be folded again afterwards. `before` is the
 * fold of all earlier grants, so a payer with thousands needs only the newest folded.
 *
 * @example two grants of 300 s and one call at 12:00:00 and 12:01:00 are two calls until 12:10:00
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
