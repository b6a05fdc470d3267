/**
 * Limits the number of concurrent calls and the memory they hold, so that one slow origin can't use up what the others
 * need. Pure.
 */

/** Concurrent calls of each bundle, and of all bundles; each process counts its own. */
const MOST_A_BUNDLE = 100
const MOST = 500
/** Bytes of all bodies of concurrent calls. Each body is kept until its payment is settled and its answer begins. */
const MOST_BYTES = 64 * 1024 * 1024
/** Bytes of its answer that a call holds at a time: a part that was read, and one that is being sent. */
export const STREAM_BYTES = 64 * 1024

export interface Places {
  /**
   * Takes a place for a call with a body of `bytes`. Returns the function that frees it, or undefined where no place is
   * free.
   */
  take(bundleId: string, bytes: number): (() => void) | undefined
}

/** Opens the places, all of them free. */
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
