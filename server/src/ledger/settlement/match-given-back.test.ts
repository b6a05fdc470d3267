import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"
import { type AwaitedReturn, type Match, matchGivenBack } from "./match-given-back.ts"

type Outflow = Row<"outflows">

/** The same as it was first written: each outflow looks at all that waits. */
function slowly(
  waiting: readonly AwaitedReturn[],
  outflows: readonly Outflow[],
  owners: ReadonlyMap<Hash, string>,
): Match[] {
  const left = new Set(waiting)
  const matches: Match[] = []
  const take = (outflow: Outflow, found: readonly AwaitedReturn[]) => {
    const [only, second] = found
    if (!only || second) return
    left.delete(only)
    matches.push({ waiting: only, outflow })
  }
  const isAt = (each: AwaitedReturn, { deposit_id, token }: Outflow) =>
    each.depositId === deposit_id && each.token === token
  const ownerOf = ({ nonce }: Outflow) => (nonce === null ? undefined : owners.get(nonce))
  for (const outflow of outflows) {
    const owner = ownerOf(outflow)
    const isAll = (each: AwaitedReturn) => !each.isSurplus || each.amount === outflow.amount
    const isIts = (each: AwaitedReturn) => each.paymentId === owner && isAt(each, outflow) && isAll(each)
    if (owner !== undefined) take(outflow, [...left].filter(isIts))
  }
  for (const outflow of outflows) {
    if (ownerOf(outflow) !== undefined) continue
    const isLike = (each: AwaitedReturn) => each.amount === outflow.amount && each.since < outflow.block_number
    take(
      outflow,
      [...left].filter(each => isAt(each, outflow) && isLike(each)),
    )
  }
  return matches
}

const where = { token: fc.constantFrom("usdc", "dai"), amount: fc.bigInt({ min: 1n, max: 3n }) }
const waits = fc.record({
  ...where,
  paymentId: fc.constantFrom("pay_1", "pay_2", "pay_3", "pay_4"),
  depositId: fc.constantFrom(1n, 2n),
  isSurplus: fc.boolean(),
  since: fc.bigInt({ min: 1n, max: 4n }),
})
const outflow = fc.record({
  ...where,
  deposit_id: fc.constantFrom(1n, 2n),
  block_number: fc.bigInt({ min: 2n, max: 5n }),
  nonce: fc.constantFrom(null, "0x1", "0x2", "0x3", "0x9"),
})
const owners = new Map([1, 2, 3].map(n => [`0x${n}` as Hash, `pay_${n}`]))

describe("matchGivenBack", () => {
  it("finds what looking at all that waits for each outflow finds", () => {
    fc.assert(
      fc.property(fc.array(waits, { maxLength: 8 }), fc.array(outflow, { maxLength: 6 }), (some, outs) => {
        const waiting = some as unknown as AwaitedReturn[]
        const outflows = outs as unknown as Outflow[]
        expect(matchGivenBack(waiting, outflows, owners)).toEqual(slowly(waiting, outflows, owners))
      }),
      { numRuns: 1_000 },
    )
  })

  it("looks at each a few times, however many strangers filled", () => {
    const looks = (n: number) => {
      let count = 0
      const waiting = Array.from({ length: n }, (_, i) => ({
        paymentId: `pay_${i}`,
        depositId: 1n,
        token: "usdc",
        isSurplus: false,
        since: 1n,
        get amount() {
          count++
          return BigInt(i)
        },
      })) as unknown as AwaitedReturn[]
      const outflows = waiting.map((_, i) => ({
        deposit_id: 1n,
        token: "usdc",
        amount: BigInt(i),
        block_number: 2n,
        nonce: null,
      }))
      expect(matchGivenBack(waiting, outflows as unknown as Outflow[], new Map())).toHaveLength(n)
      return count / n
    }
    expect(looks(2_000)).toBe(looks(100))
  })
})
