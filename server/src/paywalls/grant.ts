/** What grants add up to. Pure. */

/** "For ever", as every answer tells it. */
export const FOREVER = new Date("9999-12-31T23:59:59.999Z")

/** A grant that was not revoked; `durationS` null is for ever, `calls` null is as many as fit into its time. */
export interface LiveGrant {
  grantedAt: Date
  durationS: bigint | null
  calls: number | null
  callsUsed: number
}

/** What grants come to: until when, and the calls that are left until then (null: as many as fit). */
export interface Fold<G> {
  expiresAt: Date | null
  callsLeft: number | null
  /** Which of them the next call is taken off: the oldest that has one. */
  next: G | undefined
}

/**
 * What these grants (in the order they were granted) come to: each adds its whole duration to what is left when it is
 * granted, whether its call is used by then or not. A call lasts as long as the time that its grant added to; one that
 * was left when all time had run out is gone. With a grant without a number of calls, calls are not counted.
 *
 * @example two grants of 300 s and one call at 12:00:00 and 12:01:00 are two calls until 12:10:00
 */
export function foldGrants<G extends LiveGrant>(grants: readonly G[]): Fold<G> {
  let end: number | null = null
  let together: G[] = []
  for (const grant of grants) {
    const { durationS } = grant
    const grantedAt = grant.grantedAt.getTime()
    if (end === null || end < grantedAt) {
      together = []
      end = grantedAt
    }
    together.push(grant)
    end = Math.min(durationS === null ? FOREVER.getTime() : end + Number(durationS) * 1_000, FOREVER.getTime())
  }
  if (end === null) return { expiresAt: null, callsLeft: null, next: undefined }
  const expiresAt = new Date(end)
  if (together.some(grant => grant.calls === null)) return { expiresAt, callsLeft: null, next: undefined }
  const leftOf = ({ calls, callsUsed }: G) => (calls ?? 0) - callsUsed
  return {
    expiresAt,
    callsLeft: together.reduce((sum, grant) => sum + leftOf(grant), 0),
    next: together.find(grant => leftOf(grant) > 0),
  }
}
