/**
 * Bounds the calls that are forwarded at a time, and the bodies that they hold. Merchants and callers are names that cost
 * nothing, so no number of them may keep out a merchant that stays within its share, and unpaid calls never keep out one
 * that pays: where all places are taken, unpaid calls are ended for others. Pure.
 */

/** Places in all; each process counts its own. */
const MOST = 500
/** More of them, each for a merchant that holds none. */
const RESERVED = 100
/** Of each merchant: a fifth, whatever the number of its bundles. */
const MAX_PER_MERCHANT = 100
/** Of each caller, by the group of its address: a tenth. */
const MAX_PER_CALLER = 50
/** A larger body takes a place for each such part of it, so 500 places hold 62.5 MB. A body is kept until its answer begins. */
const BYTES_A_PLACE = 128 * 1024
/** Bytes of its answer that a call holds at a time: a part that was read, and one that is being sent. */
export const STREAM_BYTES = 64 * 1024

/** A call that asks for a place. */
export interface Newcomer {
  merchantId: string
  /** The group of its address. */
  caller: string
  /** The length of its body. */
  bytes: number
  /** Whether its route has no price. Any other call is either refused soon, or paid. */
  isFree: boolean
}

/** What a call holds. */
export interface Slot {
  /** Marks the call as paid: from now on it is not ended for others. False where it was ended before. */
  keep(): boolean
  /** Frees the place, once. */
  leave(): void
}

export interface Slots {
  /**
   * Takes a place; undefined where none is free and none can be made free. `end` is called where the call is ended for
   * another one, and its place is gone then.
   */
  take(newcomer: Newcomer, end: () => void): Slot | undefined
}

interface Call extends Omit<Newcomer, "bytes"> {
  places: number
  isPaid: boolean
  isEnded: boolean
  end: () => void
}

/** Opens the places, all of them free. */
export function openSlots(): Slots {
  // In the order in which they came. Sums are counted again for each newcomer: 1 µs while there is room, 60 where a call is ended.
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

/** Which of the calls end, so that there is room for another; undefined where it is refused. */
function makeRoom(all: readonly Call[], newcomer: Call): Call[] | undefined {
  if (sum(all.filter(call => call.caller === newcomer.caller)) + newcomer.places > MAX_PER_CALLER) return undefined
  // Where reserved places are taken, nobody ends more calls than it needs the places of.
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
      // Every merchant holds one call, or paid ones: the oldest unpaid one goes.
      const oldest = left.find(call => !call.isPaid)
      if (!oldest) return undefined
      ended.push(oldest)
    }
  }
}

/** How `most` places are shared by name; undefined where the newcomer's name would exceed its share with it. */
function sharesOf(calls: readonly Call[], newcomer: Call, nameOf: (call: Call) => string, most: number) {
  const held = new Map<string, number>([[nameOf(newcomer), 0]])
  for (const call of calls) held.set(nameOf(call), (held.get(nameOf(call)) ?? 0) + call.places)
  const heldBy = (call: Call) => held.get(nameOf(call)) ?? 0
  const share = Math.max(1, Math.floor(most / held.size))
  const own = heldBy(newcomer)
  const then = own + newcomer.places
  if (own > 0 && then > share) return undefined
  return {
    /** The oldest unpaid call of the name that holds most, of those that hold more than their share. */
    aboveShare: () =>
      calls
        .filter(call => !call.isPaid && heldBy(call) > Math.max(share, then))
        .reduce<Call | undefined>((most, call) => (most && heldBy(most) >= heldBy(call) ? most : call), undefined),
  }
}

const sum = (calls: readonly Call[]): number => calls.reduce((total, { places }) => total + places, 0)
