import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { Row } from "../../platform/db/schema.ts"
import { type Matched, matchOpen } from "./match-open.ts"
import type { WaitingGroup } from "./sellable.ts"

type Payment = Row<"payments">
const exceptions = ["underpaid", "late", "overpaid"] as const

/** The same as it was first written: each group looks at each payment. */
function slowly(groups: readonly WaitingGroup[], payments: readonly Payment[]): Matched[] {
  const left = new Set(payments)
  const take = (exact: boolean, { exception, transfers }: WaitingGroup) => {
    const [first] = transfers
    const known = [...left].find(
      row =>
        row.payer === first?.from_address &&
        row.token === first.token &&
        (row.status === "reversed"
          ? exact && transfers.some(each => each.payment_id === row.id)
          : row.deposit_id === first.deposit_id && (!exact || row.exception === exception)),
    )
    if (known) left.delete(known)
    return known
  }
  const exact = groups.map(group => ({ group, known: take(true, group) }))
  return exact.map(({ group, known }) => ({ group, known: known ?? take(false, group) }))
}

const place = fc.record({
  from: fc.constantFrom("a", "b"),
  token: fc.constantFrom("usdc", "dai"),
  deposit_id: fc.constantFrom(1n, 2n),
})
const payment = fc
  .record({ place, exception: fc.constantFrom(...exceptions), isOpen: fc.boolean() })
  .map(({ place: { from, ...where }, exception, isOpen }) => ({
    ...where,
    payer: from,
    exception,
    status: isOpen ? "open" : "reversed",
  }))
const group = fc
  .record({
    place,
    exception: fc.constantFrom(...exceptions),
    of: fc.array(fc.integer({ min: 0, max: 9 }), { maxLength: 3 }),
  })
  .map(({ place: { from, ...where }, exception, of }) => ({
    exception,
    transfers: [null, ...of.map(n => `pay_${n}`)].map(payment_id => ({ ...where, from_address: from, payment_id })),
  }))

describe("matchOpen", () => {
  it("finds what looking at each payment for each group finds", () => {
    fc.assert(
      fc.property(fc.array(payment, { maxLength: 10 }), fc.array(group, { maxLength: 8 }), (some, groups) => {
        // Open ones first, and reversed ones by id, as they are read.
        const sorted = [...some.filter(each => each.status === "open"), ...some.filter(each => each.status !== "open")]
        const payments = sorted.map((each, n) => ({ ...each, id: `pay_${n}` })) as unknown as Payment[]
        const waiting = groups as unknown as WaitingGroup[]
        const idsOf = (matched: Matched[]) => matched.map(({ known }) => known?.id)
        expect(idsOf(matchOpen(waiting, payments))).toEqual(idsOf(slowly(waiting, payments)))
      }),
      { numRuns: 500 },
    )
  })

  it("looks at each payment a few times, however many strangers filled", () => {
    const looks = (n: number) => {
      let count = 0
      const payments = Array.from({ length: n }, (_, i) => ({
        id: `pay_${i}`,
        get payer() {
          count++
          return `0x${i}`
        },
        token: "usdc",
        deposit_id: 1n,
        status: "open",
        exception: "overpaid",
      })) as unknown as Payment[]
      const groups = Array.from({ length: n }, (_, i) => ({
        exception: "overpaid" as const,
        transfers: [{ from_address: `0x${n - 1 - i}`, token: "usdc", deposit_id: 1n, payment_id: null }],
      })) as unknown as WaitingGroup[]
      expect(new Set(matchOpen(groups, payments).map(({ known }) => known?.id)).size).toBe(n)
      return count / n
    }
    expect(looks(2_000)).toBe(looks(100))
  })
})
