/** How many calls are being forwarded at a time: one slow origin must not hold what the others need. Pure. */

/** Calls in progress of each bundle, and of all together; each process has its own. */
const MOST_A_BUNDLE = 100
const MOST = 1_000

export interface Places {
  /** Takes a place; answers how to leave it, or undefined where none is left. Leaving twice is a no-op. */
  take(bundleId: string): (() => void) | undefined
}

/** Places, all free. */
export function openPlaces({ each = MOST_A_BUNDLE, all = MOST }: { each?: number; all?: number } = {}): Places {
  const taken = new Map<string, number>()
  let total = 0
  return {
    take: bundleId => {
      const before = taken.get(bundleId) ?? 0
      if (before >= each || total >= all) return undefined
      taken.set(bundleId, before + 1)
      total++
      let isHeld = true
      return () => {
        if (!isHeld) return
        isHeld = false
        total--
        const left = (taken.get(bundleId) ?? 1) - 1
        if (left > 0) taken.set(bundleId, left)
        else taken.delete(bundleId)
      }
    },
  }
}
