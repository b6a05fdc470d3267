import { expect, it } from "vitest"
import { type Newcomer, openSlots, type Slot } from "./call-slots.ts"

const KB = 1024

/** The places as a test sees them: what each call holds, and which were ended. */
function watchPlaces() {
  const places = openSlots()
  const held = new Set<Held>()
  const ended: Held[] = []
  const take = (newcomer: Partial<Newcomer>): Held | undefined => {
    const call: Newcomer = { merchantId: "mer", caller: "caller", bytes: 0, isFree: true, ...newcomer }
    const one: Held = { ...call, places: Math.max(1, Math.ceil(call.bytes / (128 * KB))), isPaid: false }
    const place = places.take(call, () => {
      held.delete(one)
      ended.push(one)
    })
    if (!place) return undefined
    one.place = place
    held.add(one)
    return one
  }
  const leave = (one: Held) => {
    one.place?.leave()
    held.delete(one)
  }
  const keep = (one: Held) => {
    one.isPaid = one.place?.keep() ?? false
    return one.isPaid
  }
  return { take, leave, keep, held, ended }
}
interface Held extends Newcomer {
  places: number
  isPaid: boolean
  place?: Slot
}

const many = <T>(count: number, of: (nth: number) => T | undefined): T[] =>
  Array.from({ length: count }, (_, nth) => of(nth)).filter(one => one !== undefined)
const sum = (calls: Iterable<Held>) => [...calls].reduce((total, { places }) => total + places, 0)

it("no caller takes more than 50, no merchant more than 100, and what is given back is free again", () => {
  const { take, leave, held } = watchPlaces()
  expect(many(200, nth => take({ merchantId: `mer_${nth}` }))).toHaveLength(50)
  expect(many(200, nth => take({ merchantId: "mer_x", caller: `${nth}`, isFree: false }))).toHaveLength(100)
  const others = many(350, nth => take({ merchantId: `mer_${nth}`, caller: `${nth}` }))
  expect([others.length, held.size]).toEqual([350, 500])
  // Twice each: a place is given back once.
  for (const one of [...others, ...others]) leave(one)
  expect(many(350, nth => take({ merchantId: `mer_${nth}`, caller: `${nth}` }))).toHaveLength(350)
})

it("a body takes a place for each 128 KB, so all bodies together have 64 MB", () => {
  const { take } = watchPlaces()
  const calls = many(600, nth =>
    take({ merchantId: `mer_${nth % 5}`, caller: `${nth}`, bytes: 256 * KB, isFree: false }),
  )
  expect(calls).toHaveLength(250)
})

it("five merchants with hanging origins keep nobody out, and lose the oldest of what they hold too much", () => {
  const { take, keep, ended } = watchPlaces()
  const hanging = many(500, nth => take({ merchantId: `slow_${nth % 5}`, caller: `${nth % 10}` }))
  expect(hanging).toHaveLength(500)
  const paid = take({ merchantId: "honest", caller: "payer", isFree: false })
  expect([paid && keep(paid), ended]).toEqual([true, [hanging[0]]])
  expect(many(82, nth => take({ merchantId: "honest", caller: `c${nth}` }))).toHaveLength(82)
  // Its share, a sixth of 500, is used up now.
  expect(take({ merchantId: "honest", caller: "one more" })).toBeUndefined()
  expect(ended.every(({ merchantId }) => merchantId !== "honest")).toBe(true)
})

it("a merchant's free calls don't keep out who pays it, and callers of its own don't keep out others", () => {
  const { take, ended } = watchPlaces()
  const flood = many(100, nth => take({ caller: `${nth % 2}` }))
  expect([flood.length, take({ caller: "0" })]).toEqual([100, undefined])
  expect([take({ caller: "other" }) !== undefined, ended]).toEqual([true, [flood[0]]])
  const { take: takeOne, ended: endedOfEach } = watchPlaces()
  const each = many(100, nth => takeOne({ caller: `${nth}` }))
  // Nobody holds more than another: what runs is not ended for what would take as long, only for what pays.
  expect(takeOne({ caller: "other" })).toBeUndefined()
  expect([takeOne({ caller: "other", isFree: false }) !== undefined, endedOfEach]).toEqual([true, [each[0]]])
})

it("a merchant that holds nothing gets a place though all are paid for, or each belongs to another merchant", () => {
  const { take, keep, ended } = watchPlaces()
  const paid = many(500, nth => take({ merchantId: `rich_${nth % 5}`, caller: `${nth}`, isFree: false }))
  expect(paid.filter(keep)).toHaveLength(500)
  expect(take({ merchantId: "rich_1", caller: "one more", isFree: false })).toBeUndefined()
  const reserved = many(100, nth => take({ merchantId: `poor_${nth}`, caller: `p${nth}` }))
  expect([reserved.length, ended.length]).toEqual([100, 0])
  expect([take({ merchantId: "last", caller: "last" }) !== undefined, ended]).toEqual([true, [reserved[0]]])
})

/** Small and repeatable: a fault is found again. */
function dice(seed: number): (below: number) => number {
  let state = seed
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0
    return Math.floor((state / 2 ** 32) * below)
  }
}

it.each([1, 2, 3, 4, 5, 6])("whoever comes in whatever order, the law holds (seed %i)", seed => {
  const roll = dice(seed)
  const { take, leave, keep, held, ended } = watchPlaces()
  // From a few names that want everything to as many names as calls.
  const merchants = [3, 6, 20, 120, 700, 5][seed % 6] ?? 5
  const callers = [1_000, 40, 700, 12, 1_000, 9][seed % 6] ?? 9
  const paying = [2, 5, 1, 10, 3, 4][seed % 6] ?? 2
  const seen = { refused: 0, ended: 0, reserved: 0 }
  for (let step = 0; step < 6_000; step++) {
    const before = [...held]
    const now = before[roll(Math.max(1, before.length))]
    const what = roll(10)
    // Hardly anybody leaves: their origins hang.
    if (what === 0 && now) leave(now)
    else if (what === 1 && now && !now.isFree) expect(keep(now)).toBe(true)
    else {
      const newcomer = {
        merchantId: `mer_${roll(roll(3) === 0 ? 2 : merchants)}`,
        caller: `c${roll(callers)}`,
        bytes: [0, 0, 0, 100 * KB, 256 * KB][roll(5)] ?? 0,
        isFree: roll(paying) > 0,
      }
      const endedBefore = ended.length
      const got = take(newcomer)
      const gone = ended.slice(endedBefore)
      const of = (calls: Held[], name: "merchantId" | "caller") =>
        sum(calls.filter(call => call[name] === newcomer[name]))
      const places = newcomer.bytes > 128 * KB ? 2 : 1
      const own = of(before, "merchantId")
      const names = new Set([...before.map(({ merchantId }) => merchantId), newcomer.merchantId]).size
      const share = Math.max(1, Math.floor(500 / names))
      const heldBy = Map.groupBy(before, ({ merchantId }) => merchantId)
      const isOver = (call: Held) => sum(heldBy.get(call.merchantId) ?? []) > Math.max(share, own + places)
      const isCallerFull = of(before, "caller") + places > 50
      const isWithin = own === 0 || own + places <= Math.min(share, 100)
      seen.ended += gone.length
      if (sum(held) > 500) seen.reserved++
      if (!got) {
        seen.refused++
        expect(gone).toEqual([])
        if (!isCallerFull) {
          // Nobody who holds nothing is refused while anything unpaid is held.
          if (own === 0) expect(before.every(({ isPaid }) => isPaid)).toBe(true)
          if (isWithin) expect(before.filter(call => !call.isPaid && isOver(call))).toEqual([])
          if (isWithin && !newcomer.isFree) expect(before.filter(({ isFree }) => isFree)).toEqual([])
        }
      }
      // Who is within its share loses nothing, but to a call that may pay, or to a merchant that holds nothing. A newcomer of
      // two places may end two calls, each by what the first has left.
      for (const call of gone) {
        expect(call.isPaid).toBe(false)
        if (places === 1 && call.merchantId !== newcomer.merchantId && !isOver(call))
          expect(own === 0 || (call.isFree && !newcomer.isFree && isWithin)).toBe(true)
      }
    }
    expect(sum(held)).toBeLessThanOrEqual(600 + 1)
    if (step % 50 !== 0) continue
    for (const calls of Map.groupBy(held, ({ merchantId }) => merchantId).values())
      expect(sum(calls)).toBeLessThanOrEqual(100)
    for (const calls of Map.groupBy(held, ({ caller }) => caller).values()) expect(sum(calls)).toBeLessThanOrEqual(50)
  }
  expect(seen.ended).toBeGreaterThan(0)
  for (const one of held) leave(one)
  // Nothing is lost on the way: all places are there again.
  expect(many(600, nth => take({ merchantId: `new_${nth % 5}`, caller: `n${nth}`, isFree: false }))).toHaveLength(500)
})
