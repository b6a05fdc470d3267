import fc from "fast-check"
import { describe, expect, it } from "vitest"
import {
  ADD_UP_MS,
  type Folded,
  foldTransfers,
  minPrice,
  type OpenTransfer,
  priceAt,
  QUOTE_MS,
  type Version,
  versionsFrom,
} from "./payment.ts"

const at = (minutes: number) => new Date(Date.UTC(2026, 0, 1) + minutes * 60_000)

describe("priceAt", () => {
  const versions: Version[] = [
    { n: 1, price: 5n, active: true, depositId: 1n, fromAt: at(0), untilAt: at(100) },
    { n: 2, price: 9n, active: true, depositId: 1n, fromAt: at(100), untilAt: at(200) },
    { n: 3, price: 9n, active: true, depositId: 2n, fromAt: at(200), untilAt: at(300) },
    { n: 4, price: 9n, active: false, depositId: 2n, fromAt: at(300), untilAt: at(400) },
    { n: 5, price: 7n, active: true, depositId: 2n, fromAt: at(400), untilAt: null },
  ]

  it.each([
    ["in force", 1n, 50, 5n],
    ["stamped before the paywall was made", 1n, -1, 5n],
    ["up to an hour after a rise: the old price", 1n, 159, 5n],
    ["later: the new price", 1n, 161, 9n],
    ["an old address, within the hour", 1n, 259, 9n],
    ["an old address, later", 1n, 261, undefined],
    ["a new address, stamped before it was made", 2n, 150, 9n],
    ["switched off", 2n, 350, undefined],
    ["switched off a moment ago", 2n, 301, undefined],
    ["switched on again", 2n, 461, 7n],
  ])("%s", (_what, depositId, minutes, price) => {
    expect(priceAt(versions, depositId, at(minutes))).toBe(price)
  })

  it("a cut price holds for a block stamped in the second of the cut", () => {
    const cut: Version[] = [
      {
        n: 1,
        price: 9n,
        active: true,
        depositId: 1n,
        fromAt: at(0),
        untilAt: new Date(at(10).getTime() + 900),
      },
      {
        n: 2,
        price: 5n,
        active: true,
        depositId: 1n,
        fromAt: new Date(at(10).getTime() + 900),
        untilAt: null,
      },
    ]
    expect(priceAt(cut, 1n, at(10))).toBe(5n)
  })

  it("is the same without the versions that ended long before", () => {
    const times = fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 8 })
    const kinds = fc.array(fc.record({ active: fc.boolean(), moves: fc.boolean() }), { minLength: 8, maxLength: 8 })
    fc.assert(
      fc.property(times, kinds, fc.nat(900), fc.nat(400), (lengths, of, since, minutes) => {
        let from = 0
        let depositId = 1n
        const versions = lengths.map((length, i): Version => {
          const { active = true, moves = false } = of[i] ?? {}
          if (moves) depositId++
          const fromAt = at(from)
          from += length
          const untilAt = i === lengths.length - 1 ? null : at(from)
          return { n: i + 1, price: BigInt(i + 5), active, depositId, fromAt, untilAt }
        })
        const few = versionsFrom(versions, at(since))
        for (let id = 1n; id <= depositId; id++)
          expect(priceAt(few, id, at(since + minutes))).toBe(priceAt(versions, id, at(since + minutes)))
      }),
    )
    const ended = Array.from({ length: 5_000 }, (_, i): Version => {
      return { n: i + 1, price: 5n, active: true, depositId: 1n, fromAt: at(i), untilAt: at(i + 1) }
    })
    expect(versionsFrom(ended, at(5_000 + QUOTE_MS / 60_000)).map(({ n }) => n)).toEqual([1])
  })
})

/** The same as {@link foldTransfers}, as it was first written: each transfer looks at all parts before it. */
function slowly(open: readonly OpenTransfer[]): Folded {
  const sum = (parts: readonly OpenTransfer[]) => parts.reduce((total, part) => total + part.value, 0n)
  const late = open.filter(transfer => transfer.price === undefined && transfer.ready)
  const priced = open.filter(transfer => transfer.price !== undefined)
  const [paid, short]: [OpenTransfer[][], Folded["short"]] = [[], []]
  const leave = (parts: OpenTransfer[]) => {
    if (parts.length > 0) short.push({ transfers: parts, received: sum(parts), price: minPrice(parts) })
  }
  let parts: OpenTransfer[] = []
  for (const transfer of [...priced.filter(each => each.ready), ...priced.filter(each => !each.ready)]) {
    if (!transfer.ready && parts.length === 0) break
    const isFar = (part: OpenTransfer) => Math.abs(transfer.minedAt.getTime() - part.minedAt.getTime()) > ADD_UP_MS
    leave(parts.filter(isFar))
    parts = [...parts.filter(part => !isFar(part)), transfer]
    if (sum(parts) < minPrice(parts)) continue
    paid.push(parts)
    parts = []
  }
  leave(parts)
  return { paid, short, late }
}

describe("foldTransfers", () => {
  const transfer = (id: number, value: bigint, more: Partial<OpenTransfer> = {}): OpenTransfer => ({
    id: BigInt(id),
    value,
    minedAt: at(id),
    price: 5n,
    ready: true,
    ...more,
  })
  const ids = (transfers: readonly OpenTransfer[]) => transfers.map(each => Number(each.id))

  it("makes a payment of each that reaches the price, and of parts that do together", () => {
    const folded = foldTransfers([transfer(1, 5n), transfer(2, 3n), transfer(3, 1n), transfer(4, 1n), transfer(5, 2n)])
    expect(folded.paid.map(ids)).toEqual([[1], [2, 3, 4]])
    expect(folded.short).toMatchObject([{ received: 2n, price: 5n }])
  })

  it("takes what is not ready only to complete what is", () => {
    const unready = { ready: false }
    expect(foldTransfers([transfer(1, 5n, unready)])).toEqual({ paid: [], short: [], late: [] })
    expect(foldTransfers([transfer(1, 1n, unready), transfer(2, 4n)]).paid.map(ids)).toEqual([[2, 1]])
    expect(foldTransfers([transfer(1, 5n), transfer(2, 5n, unready)]).paid.map(ids)).toEqual([[1]])
  })

  it("sets apart what came when nothing was for sale", () => {
    const folded = foldTransfers([{ ...transfer(1, 5n), price: undefined }, transfer(2, 5n)])
    expect([folded.paid.map(ids), ids(folded.late)]).toEqual([[[2]], [1]])
  })

  it("forgets parts that are older than seven days", () => {
    const old = transfer(1, 4n, { minedAt: new Date(0) })
    expect(foldTransfers([old, transfer(2, 1n, { minedAt: new Date(ADD_UP_MS + 1) })]).short).toMatchObject([
      { received: 4n },
      { received: 1n },
    ])
    expect(foldTransfers([old, transfer(2, 1n, { minedAt: new Date(ADD_UP_MS) })]).paid.map(ids)).toEqual([[1, 2]])
  })

  it("keeps the price of a part for an hour, and its value for the week", () => {
    const started = transfer(0, 1n, { price: 1_000n })
    const cheap = transfer(0, 1n, { price: 5n })
    const dear = (minutes: number, value: bigint) => transfer(1, value, { minedAt: at(minutes), price: 1_000n })
    expect(foldTransfers([cheap, dear(60, 4n)]).paid.map(ids)).toEqual([[0, 1]])
    expect(foldTransfers([cheap, dear(61, 4n)])).toMatchObject({ paid: [], short: [{ received: 5n, price: 1_000n }] })
    expect(foldTransfers([cheap, dear(61, 999n)]).paid.map(ids)).toEqual([[0, 1]])
    expect(foldTransfers([started, dear(61, 998n)]).paid).toEqual([])
  })

  it("never uses a transfer twice, never a payment below its price, and loses none within the week", () => {
    const transfers = fc.array(
      fc.record({ value: fc.bigInt({ min: 1n, max: 12n }), price: fc.constantFrom(5n, 7n), ready: fc.boolean() }),
      { maxLength: 20 },
    )
    fc.assert(
      fc.property(transfers, list => {
        const open = list.map((each, i) => transfer(i, each.value, each))
        const { paid, short } = foldTransfers(open)
        const used = [...paid.flat(), ...short.flatMap(each => each.transfers)]
        expect(new Set(used.map(each => each.id)).size).toBe(used.length)
        for (const ready of open.filter(each => each.ready)) expect(used).toContain(ready)
        for (const parts of paid) {
          const price = parts.map(part => part.price ?? 0n).reduce((a, b) => (b < a ? b : a))
          const total = parts.reduce((sum, part) => sum + part.value, 0n)
          expect(total).toBeGreaterThanOrEqual(price)
          expect(parts.some(part => part.ready)).toBe(true)
        }
        for (const each of short) expect(each.received).toBeLessThan(each.price)
      }),
    )
  })

  it("adds up what looking at all parts for each transfer adds up, whatever times nodes report", () => {
    const times = fc.oneof(fc.nat(5), fc.nat(200), fc.nat(30_000))
    const each = fc.record({
      value: fc.bigInt({ min: 1n, max: 4n }),
      minutes: times,
      price: fc.constantFrom(undefined, 5n, 7n, 9n),
      ready: fc.boolean(),
    })
    fc.assert(
      fc.property(fc.array(each, { maxLength: 30 }), fc.boolean(), (some, isInOrder) => {
        const list = isInOrder ? some.toSorted((a, b) => a.minutes - b.minutes) : some
        const open = list.map(({ minutes, ...more }, i) => transfer(i, 1n, { ...more, minedAt: at(minutes) }))
        expect(foldTransfers(open)).toEqual(slowly(open))
      }),
      { numRuns: 1_000 },
    )
  })

  it("looks at each transfer a few times, however many one sends and whenever", () => {
    const looks = (n: number, minutes: number) => {
      let count = 0
      const open = Array.from({ length: n }, (_, i) => ({
        ...transfer(i, 1n, { price: 1_000_000n }),
        get minedAt() {
          count++
          return at(i * minutes)
        },
      }))
      foldTransfers(open)
      return count / n
    }
    // At once, and spread over weeks, so that each new one makes an old one too old.
    for (const minutes of [0, 10]) for (const n of [2_000, 20_000]) expect(looks(n, minutes)).toBeLessThan(10)
  })
})
