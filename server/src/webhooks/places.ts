/**
 * The places of one process for deliveries that are claimed and not recorded. A merchant may take as many as are left
 * free, so alone it gets half of them, and however many merchants have receivers that hang, some are free for others
 * ("dynamic thresholds", Choudhury and Hahne, 1998).
 */
interface Places {
  free(): number
  take(merchantId: string): void
  give(merchantId: string): void
  /** How many more each merchant may take now: `rooms` for those that hold some, and `room` for the others. */
  shares(): { room: number; rooms: Map<string, number> }
}

/**
 * Opens places, all free.
 *
 * @example const places = openPlaces(4)
 * places.take("mer_1")
 * places.shares() // { room: 2, rooms: Map { "mer_1" => 1 } }
 */
export function openPlaces(total: number): Places {
  let free = total
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
      // With n more, n + taken are held and free - n are left: they are equal at half of the difference.
      const roomOf = (held: number) => Math.max(0, Math.ceil((free - held) / 2))
      return { room: roomOf(0), rooms: new Map([...taken].map(([merchantId, held]) => [merchantId, roomOf(held)])) }
    },
  }
}
