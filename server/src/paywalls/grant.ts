/** What grants add up to. Pure. */

/** "For ever", as every answer tells it. */
export const FOREVER = new Date("9999-12-31T23:59:59.999Z")

/** A grant that was not revoked; `durationS` null is for ever. */
export interface LiveGrant {
  grantedAt: Date
  durationS: bigint | null
}

/**
 * When the access of these grants (in the order they were granted) ends, or null without any: each adds its whole
 * duration to what is left when it is granted.
 *
 * @example two grants of 300 s at 12:00:00 and 12:01:00 end at 12:10:00
 */
export function accessEnd(grants: readonly LiveGrant[]): Date | null {
  let end: number | null = null
  for (const { grantedAt, durationS } of grants) {
    if (durationS === null) return FOREVER
    const start: number = end === null ? grantedAt.getTime() : Math.max(end, grantedAt.getTime())
    end = Math.min(start + Number(durationS) * 1_000, FOREVER.getTime())
  }
  return end === null ? null : new Date(end)
}
