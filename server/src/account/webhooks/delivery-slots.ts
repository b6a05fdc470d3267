/**
 * One process's slots for claimed deliveries that are not recorded yet. A tenth is reserved for merchants that hold few
 * slots. A merchant may hold as many of the rest as it leaves free, so alone it gets half ("dynamic thresholds",
 * Choudhury and Hahne, 1998). Without the reserve, merchants whose receivers hang one after the other would halve the
 * free slots until none is left.
 */
interface Slots {
  free(): number
  take(merchantId: string): void
  give(merchantId: string): void
  /** How many more slots each merchant may take now: `rooms` for merchants that hold some, `room` for all others. */
  shares(): { room: number; rooms: Map<string, number> }
}

/**
 * Opens slots, all free.
 *
 * @example const slots = openSlots(4)
 * slots.take("mer_1")
 * slots.shares() // { room: 2, rooms: Map { "mer_1" => 1 } }
 */
export function openSlots(total: number): Slots {
  let free = total
  const reserve = Math.floor(total / 10)
  /** A merchant that holds at most this many also takes from the reserve. */
  const few = Math.max(1, Math.floor(total / 100))
  const taken = new Map<string, number>()
  return {
    free: () => free,
    take: merchantId => {
      free--
      taken.set(merchantId, (taken.get(merchantId) ?? 0) + 1)
    },
    give: merchantId => {
      free++
      const left = (taken.get(merchantId) ?? 1) - 1
      if (left > 0) taken.set(merchantId, left)
      else taken.delete(merchantId)
    },
    shares: () => {
      // With n more slots, the merchant holds n + held, and free - n are left. The two are equal when n is half of the
      // difference.
      const share = (held: number) => Math.ceil((free - reserve - held) / 2)
      const roomOf = (held: number) => Math.max(0, share(held), Math.min(few - held, free))
      return { room: roomOf(0), rooms: new Map([...taken].map(([merchantId, held]) => [merchantId, roomOf(held)])) }
    },
  }
}
