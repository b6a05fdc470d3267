/**
 * Limits the forwarded calls in flight, and the bodies that they hold. New merchants and callers cost nothing, so no
 * number of them may displace a merchant within its share. Unpaid calls never displace a paying one. When all slots are
 * taken, unpaid calls are ended for others. Pure.
 */

/** How many slots each process has. */
const MOST = 500
/** Additional slots, each for a merchant that holds none. */
const RESERVED = 100
/** The limit per merchant: a fifth, however many bundles it has. */
const MAX_PER_MERCHANT = 100
/** The limit per caller, by address group: a tenth. */
const MAX_PER_CALLER = 50
/** A body takes a slot per 128 KB until its answer starts, so 500 slots hold 62.5 MB. */
const BYTES_A_PLACE = 128 * 1024
/** How many bytes of its answer a call holds: a part that was read, and one being sent. */
export const STREAM_BYTES = 64 * 1024

/** A call that asks for a slot. */
export interface Newcomer {
  merchantId: string
  /** The group of its address. */
  caller: string
  /** The length of its body. */
  bytes: number
  /** Whether its route has no price. Any other call is soon refused or paid. */
  isFree: boolean
}

/** What a call holds. */
export interface Slot {
  /** Marks the call as paid, so that it is not ended for others. False if it was already ended. */
  keep(): boolean
  /** Frees the slot once. */
  leave(): void
}

export interface Slots {
  /**
   * Takes a slot; undefined if none is free or can be freed. `end` is called when the call is ended for another one,
   * which takes its slot.
   */
  take(newcomer: Newcomer, end: () => void): Slot | undefined
}

interface Call extends Omit<Newcomer, "bytes"> {
  places: number
  isPaid: boolean
  isEnded: boolean
  end: () => void
}

/** Opens the slots, all free. */
export function openSlots(): Slots {
  // In arrival order. Sums are recounted per newcomer: 1 µs while there is room, 60 if a call is ended.
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

/** Which calls end to make room for another; undefined if it is refused. */
function makeRoom(all: readonly Call[], newcomer: Call): Call[] | undefined {
  if (sum(all.filter(call => call.caller === newcomer.caller)) + newcomer.places > MAX_PER_CALLER) return undefined
  // If reserved slots are taken, a newcomer still ends only as many calls as it needs slots.
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
      // Every merchant holds one call, or only paid ones. The oldest unpaid call ends.
      const oldest = left.find(call => !call.isPaid)
      if (!oldest) return undefined
      ended.push(oldest)
    }
  }
}

/** The shares of `most` slots by name; undefined if the newcomer's name would exceed its share. */
function sharesOf(calls: readonly Call[], newcomer: Call, nameOf: (call: Call) => string, most: number) {
  const held = new Map<string, number>([[nameOf(newcomer), 0]])
  for (const call of calls) held.set(nameOf(call), (held.get(nameOf(call)) ?? 0) + call.places)
  const heldBy = (call: Call) => held.get(nameOf(call)) ?? 0
  const share = Math.max(1, Math.floor(most / held.size))
  const own = heldBy(newcomer)
  const then = own + newcomer.places
  if (own > 0 && then > share) return undefined
  return {
    /** The oldest unpaid call of the name that holds the most, among names above their share. */
    aboveShare: () =>
      calls
        .filter(call => !call.isPaid && heldBy(call) > Math.max(share, then))
        .reduce<Call | undefined>((most, call) => (most && heldBy(most) >= heldBy(call) ? most : call), undefined),
  }
}

const sum = (calls: readonly Call[]): number => calls.reduce((total, { places }) => total + places, 0)
