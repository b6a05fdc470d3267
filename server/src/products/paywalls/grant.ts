/** Folds grants into access. Pure. */

/** "For ever", as every answer formats it. */
export const FOREVER = new Date("9999-12-31T23:59:59.999Z")

/** A grant that was not revoked. `durationS` null: for ever. `calls` null: as many as fit into its time. */
export interface LiveGrant {
  grantedAt: Date
  durationS: bigint | null
  calls: number | null
  callsUsed: number
}

/** What a list of grants adds up to. */
export interface Fold {
  /** When access began and when it ends, without a gap between; null without a grant. */
  since: Date | null
  expiresAt: Date | null
  /** The calls that are left; null: as many as fit into the time, for now. */
  callsLeft: number | null
  /**
   * `callsKept`: the calls that are left once they are counted. `freeUntil`: until then they are not counted; null:
   * they are.
   */
  callsKept: number
  freeUntil: Date | null
}

const NO_GRANTS: Fold = { since: null, expiresAt: null, callsLeft: null, callsKept: 0, freeUntil: null }

/**
 * Folds these grants, in the order they were granted. Each adds its whole duration to the time left when it is granted,
 * whether its call is used by then or not. A call can be used as long as the time that its grant added to lasts; calls
 * left when all time has run out are lost. Calls are not counted until the time of a grant without a number of calls is
 * over (its own time and what was left before it). `callsLeft` is null until then, and the grants must be folded again
 * afterwards. `before` is the fold of all earlier grants, so that for a payer with thousands only the newest are
 * folded.
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
