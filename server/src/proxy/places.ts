/**
 * Limits the number of concurrent calls and the memory they hold, so that no merchant's slow origins and no caller can
 * use up what the others need. Pure.
 */

/** Concurrent calls in all; each process counts its own. */
const MOST = 500
/** Of each merchant: a fifth, whatever the number of its bundles. */
const MOST_PER_MERCHANT = 100
/** Of each caller, by the group of its address: a tenth. */
const MOST_PER_CALLER = 50
/** Bytes of all bodies of concurrent calls. Each body is kept until its payment is settled and its answer begins. */
const MOST_BYTES = 64 * 1024 * 1024
/** Bytes of its answer that a call holds at a time: a part that was read, and one that is being sent. */
export const STREAM_BYTES = 64 * 1024

export interface Places {
  /**
   * Takes a place for a call to a merchant's API, from a group of addresses, with a body of `bytes`. Returns the
   * function that frees it, or undefined where no place is free.
   */
  take(merchantId: string, caller: string, bytes: number): (() => void) | undefined
}

/** Opens the places, all of them free. */
export function openPlaces(): Places {
  const merchants = counts(MOST_PER_MERCHANT)
  const callers = counts(MOST_PER_CALLER)
  let total = 0
  let held = 0
  return {
    take: (merchantId, caller, bytes) => {
      if (total >= MOST || held + bytes > MOST_BYTES || merchants.isFull(merchantId) || callers.isFull(caller))
        return undefined
      merchants.add(merchantId, 1)
      callers.add(caller, 1)
      total++
      held += bytes
      let isHeld = true
      return () => {
        if (!isHeld) return
        isHeld = false
        merchants.add(merchantId, -1)
        callers.add(caller, -1)
        total--
        held -= bytes
      }
    },
  }
}

/** Counts by name; a name that counts nothing is forgotten. */
function counts(most: number) {
  const taken = new Map<string, number>()
  return {
    isFull: (name: string) => (taken.get(name) ?? 0) >= most,
    add: (name: string, count: number) => {
      const next = (taken.get(name) ?? 0) + count
      if (next > 0) taken.set(name, next)
      else taken.delete(name)
    },
  }
}
