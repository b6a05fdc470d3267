/** What grants add up to. Pure. */

/** "For ever", as every answer formats it. */
export const FOREVER = new Date("9999-12-31T23:59:59.999Z")

/** A grant that was not revoked; `durationS` null is for ever, `calls` null is as many as fit into its time. */
export interface LiveGrant {
  grantedAt: Date
  durationS: bigint | null
  calls: number | null
  callsUsed: number
}

/** What grants come to. */
export interface Fold {
  /** Since and until when access holds without a gap; null without a grant. */
  since: Date | null
  expiresAt: Date | null
  /** The calls that are left; null: as many as fit now. */
  callsLeft: number | null
  /** How many are left once they are counted, and until when they are not; null: they are counted. */
  callsKept: number
  freeUntil: Date | null
}

const NO_GRANTS: Fold = { since: null, expiresAt: null, callsLeft: null, callsKept: 0, freeUntil: null }

/**
 * What these grants (in the order they were granted) come to: each adds its whole duration to what is left when it is
 * granted, whether its call is used by then or not. A call lasts as long as the time that its grant added to; one that
 * was left when all time had run out is gone. Until the time of a grant without a number of calls is over (its own and
 * what was left before it), calls are not counted. `callsLeft` is null that long; after that it must be folded again.
 * `before` is what earlier grants came to, so that a payer with thousands is folded by the newest alone.
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
