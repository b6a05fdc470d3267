/** How many calls are in progress at a time, and what they hold: one slow origin must not hold what the others need. Pure. */

/** Calls in progress of each bundle, and of all together; each process has its own. */
const MOST_A_BUNDLE = 100
const MOST = 500
/** Bytes of the bodies of calls in progress: each is kept until its payment is settled and its answer begins. */
const MOST_BYTES = 64 * 1024 * 1024
/** What a call holds of its answer at a time: a part that was read, and one that is being sent. */
export const STREAM_BYTES = 64 * 1024

export interface Places {
  /** Takes a place for a call with a body of `bytes`; answers how to leave it, or undefined where none is left. */
  take(bundleId: string, bytes: number): (() => void) | undefined
}

/** Places, all free. */
export function openPlaces(): Places {
  const taken = new Map<string, number>()
  let total = 0
  let held = 0
  return {
    take: (bundleId, bytes) => {
      const before = taken.get(bundleId) ?? 0
      if (before >= MOST_A_BUNDLE || total >= MOST || held + bytes > MOST_BYTES) return undefined
      taken.set(bundleId, before + 1)
      total++
      held += bytes
      let isHeld = true
      return () => {
        if (!isHeld) return
        isHeld = false
        total--
        held -= bytes
        const left = (taken.get(bundleId) ?? 1) - 1
        if (left > 0) taken.set(bundleId, left)
        else taken.delete(bundleId)
      }
    },
  }
}
