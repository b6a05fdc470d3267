/**
 * The places of requests that wait. Each holds a connection, so their number is bounded; the bound is shared. Pure.
 *
 * The rule: a name (an address, the /64 of an IPv6 address, a merchant) holds at most its own quota. While places are
 * free, whoever is within that gets one. When none is free, a newcomer takes the oldest place of the name that holds
 * most, in the network that holds most (/24, or /48 of IPv6), if that leaves both sides closer to equal: an address
 * costs nothing in a network that somebody has, so many of them count as one. Otherwise, as where everybody holds one,
 * the newcomer gets none and nobody is sent away: they would only take turns in reconnecting. Whoever gets none, or
 * loses one, is answered with the present state, and may ask again.
 *
 * Sessions have no share of their own: whoever opens checkouts has as many as it likes, and those who wait for one
 * session cost the least, as they share its reads (`shared-reads.ts`).
 */

/** Who waits. */
export interface Holder {
  name: string
  /** The most places of this name. */
  most: number
}

export interface Slots {
  /**
   * Takes a place. Returns the function that gives it back, or undefined where the holder gets none. `leave` is called
   * if somebody else gets the place.
   */
  take(holder: Holder, leave: () => void): (() => void) | undefined
}

interface Slot {
  leave: () => void
}

/** The oldest place comes first. */
type Names = Map<string, Set<Slot>>

/** Opens places, all of them free. */
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

  /** Makes room for one more place of a name; false where nobody holds enough more than it. */
  function makeRoom(network: string, name: string): boolean {
    const own = sizeOf(networks.get(network))
    const [largest, size] = largestOf(networks, sizeOf)
    // Within its own network, names share what the network has.
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

/** The entry with the greatest size, the first of several. It looks at all: a few microseconds, on a full house only. */
function largestOf<V>(entries: ReadonlyMap<string, V>, sizeOf: (value: V) => number): [name: string, size: number] {
  let largest: [string, number] = ["", 0]
  for (const [name, value] of entries) {
    const size = sizeOf(value)
    if (size > largest[1]) largest = [name, size]
  }
  return largest
}

/**
 * The network of a name, as `addressGroup` writes it: the /24 of an IPv4 address, the /48 of the /64 of an IPv6 one. A
 * name that is no address is alone.
 */
const networkOf = (name: string): string => name.replace(/[.:][0-9a-f]+$/, "")
