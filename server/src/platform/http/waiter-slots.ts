/**
 * Slots for requests that wait. Each request holds a connection, so their number is bounded, and the bound is shared.
 * Pure.
 *
 * The rule: a name (an address, the /64 of an IPv6 address, a merchant) holds at most its own quota. While slots are
 * free, any name within its quota gets one. When none is free, a newcomer may take the oldest slot of the largest name
 * in the largest network (/24, or /48 of IPv6). A newcomer does so only if both sides become closer to equal. Addresses
 * within one network cost nothing, so many of them count as one. Otherwise, for example if everybody holds one slot,
 * the newcomer gets none and nobody is sent away, because callers would only take turns in reconnecting. A request that
 * gets no slot, or loses one, is answered with the current state, and may ask again.
 *
 * Sessions have no quota, because anyone can open any number of checkouts. Waiters of the same session cost the least,
 * because they share the session's reads (`shared-reads.ts`).
 */

/** The holder of a slot. */
export interface Holder {
  name: string
  /** The maximum number of slots of this name. */
  most: number
}

export interface Slots {
  /**
   * Takes a slot. Returns the function that frees the slot, or undefined if the holder gets none. `leave` is called if
   * another holder gets the slot.
   */
  take(holder: Holder, leave: () => void): (() => void) | undefined
}

interface Slot {
  leave: () => void
}

/** The oldest slot comes first. */
type Names = Map<string, Set<Slot>>

/** Creates slots, all of them free. */
export function openSlots(most: number): Slots {
  const networks = new Map<string, Names>()
  let total = 0

  const sizeOf = (names: Names | undefined): number => {
    let size = 0
    for (const places of names?.values() ?? []) size += places.size
    return size
  }

  function free(network: string, name: string, place: Slot): void {
    const names = networks.get(network)
    const places = names?.get(name)
    if (!places?.delete(place)) return
    total--
    if (places.size === 0) names?.delete(name)
    if (names?.size === 0) networks.delete(network)
  }

  /** Makes room for one more slot of a name; false if no other name holds enough more slots. */
  function makeRoom(network: string, name: string): boolean {
    const own = sizeOf(networks.get(network))
    const [largest, size] = largestOf(networks, sizeOf)
    // Within its own network, a name takes a slot from another name of that network.
    const from = own + 1 < size ? largest : network
    const [longest, held] = largestOf(networks.get(from) ?? new Map<string, Set<Slot>>(), places => places.size)
    if (from === network && (networks.get(network)?.get(name)?.size ?? 0) + 1 >= held) return false
    const [oldest] = networks.get(from)?.get(longest) ?? []
    if (!oldest) return false
    free(from, longest, oldest)
    oldest.leave()
    return true
  }

  return {
    take: ({ name, most: quota }, leave) => {
      const network = networkOf(name)
      if ((networks.get(network)?.get(name)?.size ?? 0) >= quota) return undefined
      if (total >= most && !makeRoom(network, name)) return undefined
      const names = networks.get(network) ?? new Map<string, Set<Slot>>()
      const places = names.get(name) ?? new Set<Slot>()
      const place = { leave }
      networks.set(network, names.set(name, places.add(place)))
      total++
      return () => free(network, name, place)
    },
  }
}

/**
 * The first entry with the greatest size. The search checks all entries: a few microseconds, and only if no slot is
 * free.
 */
function largestOf<V>(entries: ReadonlyMap<string, V>, sizeOf: (value: V) => number): [name: string, size: number] {
  let largest: [string, number] = ["", 0]
  for (const [name, value] of entries) {
    const size = sizeOf(value)
    if (size > largest[1]) largest = [name, size]
  }
  return largest
}

/**
 * The network of a name, as `addressGroup` writes it: the /24 of an IPv4 address, the /48 that contains an IPv6
 * address's /64. A name that is not an address has a network of its own.
 */
const networkOf = (name: string): string => name.replace(/[.:][0-9a-f]+$/, "")
