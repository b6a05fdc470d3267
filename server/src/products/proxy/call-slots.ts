/**
 * Limits the forwarded calls in flight, and the bodies that they hold. Anyone can add merchants and callers for free,
 * so no number of them may displace a merchant that stays within its share. Unpaid calls never displace a paying one.
 * When all slots are taken, unpaid calls are ended to make room for others. Pure.
 */

/** How many slots each process has. */
const MOST = 500
/** How many additional slots there are, each for a merchant that holds none. */
const RESERVED = 100
/** The most slots per merchant: a fifth of all, however many bundles the merchant has. */
const MAX_PER_MERCHANT = 100
/** The most slots per caller (address group): a tenth of all. */
const MAX_PER_CALLER = 50
/** The size of body for which a call takes one slot until its answer starts. So 500 slots hold 62.5 MB. */
const BYTES_A_PLACE = 128 * 1024
/** How many bytes of its answer a call holds: a part that was read, and a part that is being sent. */
export const STREAM_BYTES = 64 * 1024

/** A call that asks for a slot. */
export interface Newcomer {
  merchantId: string
  /** The address group of the caller. */
  caller: string
  /** The length of the body. */
  bytes: number
  /** Whether the route has no price. A call with a price is soon refused or paid. */
  isFree: boolean
}

/** The slots that a call holds. */
export interface Slot {
  /** Marks the call as paid, so that it is not ended for others. Returns false if it was already ended. */
  keep(): boolean
  /** Frees the slots. */
  leave(): void
}

export interface Slots {
  /**
   * Takes the slots for a call; undefined if too few are free or can be freed. `end` is called when the call is ended
   * because another one takes its slots.
   */
  take(newcomer: Newcomer, end: () => void): Slot | undefined
}

interface Call extends Omit<Newcomer, "bytes"> {
  places: number
  isPaid: boolean
  isEnded: boolean
  end: () => void
}

/** Opens the slots, all of which are free. */
export function openSlots(): Slots {
  // In arrival order. The sums are recounted for each newcomer, which takes 1 µs while there is room, and 60 µs if a
  // call is ended.
  const calls = new Set<Call>()
  return {
    take: ({ bytes, ...newcomer }, end) => {
      const places = Math.max(1, Math.ceil(bytes / BYTES_A_PLACE))
      const call: Call = { ...newcomer, places, isPaid: false, isEnded: false, end }
      const ended = makeRoom([...calls], call)
      if (!ended) return undefined
      for (const each of ended) {
        calls.delete(each)
        each.isEnded = true
      }
      calls.add(call)
      for (const each of ended) each.end()
      return {
        keep: () => {
          call.isPaid = !call.isEnded
          return call.isPaid
        },
        leave: () => void calls.delete(call),
      }
    },
  }
}

/** Returns the calls to end so that the newcomer gets its slots; undefined if the newcomer is refused. */
function makeRoom(all: readonly Call[], newcomer: Call): Call[] | undefined {
  if (sum(all.filter(call => call.caller === newcomer.caller)) + newcomer.places > MAX_PER_CALLER) return undefined
  // Even if reserved slots are taken, a newcomer ends only the calls whose slots it needs itself.
  const most = Math.max(MOST, sum(all))
  const ended: Call[] = []
  for (let left = all; ; left = left.filter(call => call !== ended.at(-1))) {
    const own = left.filter(call => call.merchantId === newcomer.merchantId)
    const fitsMerchant = sum(own) + newcomer.places <= MAX_PER_MERCHANT
    const total = sum(left) + newcomer.places
    if (fitsMerchant && total <= most) return ended
    const others = fitsMerchant ? sharesOf(left, newcomer, call => call.merchantId, MOST) : undefined
    const next =
      others?.aboveShare() ??
      sharesOf(own, newcomer, call => call.caller, sum(own))?.aboveShare() ??
      (newcomer.isFree ? undefined : [...own, ...(others ? left : [])].find(call => call.isFree))
    if (next) ended.push(next)
    else if (own.length > 0) return undefined
    else if (total <= MOST + RESERVED) return ended
    else {
      // Every merchant holds only one call or only paid ones, so the oldest unpaid call ends.
      const oldest = left.find(call => !call.isPaid)
      if (!oldest) return undefined
      ended.push(oldest)
    }
  }
}

/** The shares of `most` slots by name; undefined if the newcomer would bring its own name above its share. */
function sharesOf(calls: readonly Call[], newcomer: Call, nameOf: (call: Call) => string, most: number) {
  const held = new Map<string, number>([[nameOf(newcomer), 0]])
  for (const call of calls) held.set(nameOf(call), (held.get(nameOf(call)) ?? 0) + call.places)
  const heldBy = (call: Call) => held.get(nameOf(call)) ?? 0
  const share = Math.max(1, Math.floor(most / held.size))
  const own = heldBy(newcomer)
  const then = own + newcomer.places
  if (own > 0 && then > share) return undefined
  return {
    /** The oldest unpaid call of the name that holds the most slots, among names that hold more than their share. */
    aboveShare: () =>
      calls
        .filter(call => !call.isPaid && heldBy(call) > Math.max(share, then))
        .reduce<Call | undefined>((most, call) => (most && heldBy(most) >= heldBy(call) ? most : call), undefined),
  }
}

const sum = (calls: readonly Call[]): number => calls.reduce((total, { places }) => total + places, 0)
