import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { openSlots } from "./delivery-slots.ts"

/** Fills the places as far as each merchant may, in turns, and returns how many each has. */
function fill(total: number, merchants: readonly string[]) {
  const places = openSlots(total)
  const held = new Map(merchants.map(merchant => [merchant, 0]))
  for (let isFull = false; !isFull; ) {
    isFull = true
    for (const merchant of merchants) {
      const { room, rooms } = places.shares()
      if ((rooms.get(merchant) ?? room) === 0 || places.free() === 0) continue
      places.take(merchant)
      held.set(merchant, (held.get(merchant) ?? 0) + 1)
      isFull = false
    }
  }
  return { places, held: [...held.values()] }
}

describe("places", () => {
  it.each([
    [500, 1, [225]],
    [500, 2, [150, 150]],
    [500, 4, [90, 90, 90, 90]],
    [1, 1, [1]],
    [2, 1, [1]],
  ])("of %i, %i merchants that give none back hold %j", (total, merchants, held) => {
    expect(
      fill(
        total,
        Array.from({ length: merchants }, (_, i) => `mer_${i}`),
      ).held,
    ).toEqual(held)
  })

  it("are left for a newcomer where merchants take all that they may one after the other", () => {
    const places = openSlots(500)
    const held: number[] = []
    for (let i = 0; i < 12; i++) {
      const { room } = places.shares()
      for (let n = 0; n < room; n++) places.take(`mer_${i}`)
      held.push(room)
    }
    expect(held).toEqual([225, 113, 56, 28, 14, 7, 5, 5, 5, 5, 5, 5])
    expect(places.free()).toBe(27)
  })

  it("leave one for a newcomer unless there are as many merchants as places, and come back whole", () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 20 }), (total, count) => {
        const merchants = Array.from({ length: count }, (_, i) => `mer_${i}`)
        const { places, held } = fill(total, merchants)
        if (count < total - 1) expect(places.free()).toBeGreaterThan(0)
        expect(places.free() + held.reduce((sum, each) => sum + each, 0)).toBe(total)
        held.forEach((n, i) => {
          for (let k = 0; k < n; k++) places.give(`mer_${i}`)
        })
        expect([places.free(), places.shares().rooms.size]).toEqual([total, 0])
      }),
    )
  })
})
