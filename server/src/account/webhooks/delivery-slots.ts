/**
 * The places of one process for deliveries that are claimed and not recorded. A tenth is a reserve for merchants that
 * hold few. Of the others a merchant may take as many as it leaves free, so alone it gets half of them ("dynamic
 * thresholds", Choudhury and Hahne, 1998). Without the reserve, merchants whose receivers begin to hang one after the
 * other would halve what is free until nothing is left.
 */
interface Slots {
  free(): number
  take(merchantId: string): void
  give(merchantId: string): void
  /** How many more each merchant may take now: `rooms` for those that hold some, and `room` for the others. */
  shares(): { room: number; rooms: Map<string, number> }
}

/**
 * Opens places, all free.
 *
 * @example const slots = openSlots(4)
 * slots.take("mer_1")
 * slots.shares() // { room: 2, rooms: Map { "mer_1" => 1 } }
 */
export function openSlots(total: number): Slots {
  let free = total
  const reserve = Math.floor(total / 10)
  /** Up to here a merchant takes from the reserve too. */
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
      // With n more, n + held are held and free - n are left: they are equal at half of the difference.
      const share = (held: number) => Math.ceil((free - reserve - held) / 2)
      const roomOf = (held: number) => Math.max(0, share(held), Math.min(few - held, free))
      return { room: roomOf(0), rooms: new Map([...taken].map(([merchantId, held]) => [merchantId, roomOf(held)])) }
    },
  }
}
