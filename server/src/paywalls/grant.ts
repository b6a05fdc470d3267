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

/** What grants come to: since and until when access holds without a gap, and the calls that are left (null: as many as fit now). */
export interface Fold {
  since: Date | null
  expiresAt: Date | null
  callsLeft: number | null
}

/**
 * What these grants (in the order they were granted) come to: each adds its whole duration to what is left when it is
 * granted, whether its call is used by then or not. A call lasts as long as the time that its grant added to; one that
 * was left when all time had run out is gone. Until the time of a grant without a number of calls is over (its own and
 * what was left before it), calls are not counted. `callsLeft` is null that long; after that it must be folded again.
 *
 * @example two grants of 300 s and one call at 12:00:00 and 12:01:00 are two calls until 12:10:00
 */
export function foldGrants(grants: readonly LiveGrant[], now: Date): Fold {
  let since: number | null = null
  let end = Number.NEGATIVE_INFINITY
  let callsLeft = 0
  let freeUntil = Number.NEGATIVE_INFINITY
  for (const { grantedAt, durationS, calls, callsUsed } of grants) {
    const at = grantedAt.getTime()
    if (end < at) {
      since = at
      end = at
      callsLeft = 0
    }
    end = Math.min(durationS === null ? FOREVER.getTime() : end + Number(durationS) * 1_000, FOREVER.getTime())
    if (calls === null) freeUntil = end
    else callsLeft += calls - callsUsed
  }
  if (since === null) return { since: null, expiresAt: null, callsLeft: null }
  const isFree = freeUntil === end || freeUntil > now.getTime()
  return { since: new Date(since), expiresAt: new Date(end), callsLeft: isFree ? null : callsLeft }
}
