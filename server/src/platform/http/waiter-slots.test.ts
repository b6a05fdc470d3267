import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { openSlots } from "./waiter-slots.ts"

/** Fills places in this order; returns which of them were taken from their holder, by their number. */
function fill(most: number, names: readonly string[], quota = Number.POSITIVE_INFINITY) {
  const places = openSlots(most)
  const left: number[] = []
  const taken = names.map((name, i) => places.take({ name, most: quota }, () => left.push(i)))
  return { places, left, taken }
}

describe("the places of those who wait", () => {
  it("are bounded for each name, and come back once", () => {
    const { places, taken } = fill(100, Array(20).fill("192.0.2.1"), 20)
    const take = (name: string) => places.take({ name, most: 20 }, () => {})
    expect(take("192.0.2.1")).toBeUndefined()
    expect(take("192.0.2.2")).toBeDefined()
    taken[0]?.()
    taken[0]?.()
    expect(take("192.0.2.1")).toBeDefined()
    expect(take("192.0.2.1")).toBeUndefined()
  })

  it("of many addresses of one network are one holder's: a stranger gets the oldest of them", () => {
    // A /48 has 65,536 networks of the size that one customer has.
    const many = Array.from({ length: 50 }, (_, i) => `2001:db8:1:${i.toString(16)}`)
    const { places, left } = fill(50, many)
    for (let i = 0; i < 24; i++) expect(places.take({ name: `198.51.${i}.1`, most: 20 }, () => {})).toBeDefined()
    expect(left).toEqual(Array.from({ length: 24 }, (_, i) => i))
    // Another address of that network changes nothing for others: it takes a place of its own network, or none.
    expect(places.take({ name: "2001:db8:1:ffff", most: 20 }, () => {})).toBeUndefined()
  })

  it("within a network, of an address with many go to one with few", () => {
    const { places, left } = fill(21, [...Array(20).fill("192.0.2.1"), "198.51.100.1"], 20)
    expect(places.take({ name: "192.0.2.2", most: 20 }, () => {})).toBeDefined()
    expect(left).toEqual([0])
  })

  it("are not taken from those who hold as few as the newcomer: both would only take turns", () => {
    const { places, left } = fill(
      30,
      Array.from({ length: 30 }, (_, i) => `10.0.${i}.1`),
    )
    expect(places.take({ name: "192.0.2.1", most: 20 }, () => {})).toBeUndefined()
    expect(left).toEqual([])
  })

  it("whoever comes and goes: no more than there are, no name beyond its quota, and each place leaves once", () => {
    const name = fc.oneof(
      fc.tuple(fc.nat(3), fc.nat(3)).map(([net, host]) => `10.0.${net}.${host}`),
      fc.tuple(fc.nat(2), fc.nat(3)).map(([net, of]) => `2001:db8:${net}:${of}`),
      fc.constantFrom("mer_a", "mer_b"),
    )
    const step = fc.record({ name, gives: fc.boolean(), which: fc.nat() })
    fc.assert(
      fc.property(
        fc.integer({ min: 1, max: 12 }),
        fc.integer({ min: 1, max: 5 }),
        fc.array(step),
        (most, quota, steps) => {
          const places = openSlots(most)
          const held = new Map<number, { name: string; giveBack: () => void }>()
          const gone = new Set<number>()
          for (const [i, { name, gives, which }] of steps.entries()) {
            const [id, place] = [...held][which % Math.max(1, held.size)] ?? []
            if (gives && id !== undefined && place) {
              place.giveBack()
              place.giveBack()
              held.delete(id)
              continue
            }
            const before = [...held.values()].filter(each => each.name === name).length
            const giveBack = places.take({ name, most: quota }, () => {
              expect(gone.has(i)).toBe(false)
              gone.add(i)
              held.delete(i)
            })
            if (giveBack) held.set(i, { name, giveBack })
            expect(held.size).toBeLessThanOrEqual(most)
            const counts = [...Map.groupBy(held.values(), each => each.name).values()].map(each => each.length)
            expect(Math.max(0, ...counts)).toBeLessThanOrEqual(quota)
            // Refused: it has its quota, or nobody of another network has two more than its network would have.
            if (giveBack || before >= quota) continue
            expect(held.size).toBe(most)
            const netOf = (of: string) => of.replace(/[.:][0-9a-f]+$/, "")
            const nets = Map.groupBy(held.values(), each => netOf(each.name))
            const own = nets.get(netOf(name))?.length ?? 0
            expect(Math.max(...[...nets.values()].map(each => each.length))).toBeLessThanOrEqual(own + 1)
          }
        },
      ),
    )
  })
})
