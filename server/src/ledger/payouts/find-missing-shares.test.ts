import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { missingShares } from "./find-missing-shares.ts"

const recipients = [{ percentE4: 700_000 }, { percentE4: 300_000 }]
const nobody = { received: 0n, promised: [] }
const sum = (amounts: readonly bigint[]) => amounts.reduce((total, amount) => total + amount, 0n)

describe("what each share still gets", () => {
  it.each([
    ["all of a new payment", 100n, [], nobody, [70n, 30n]],
    ["what another reorg left of it", 100n, [{ share: 0, amount: 50n }], nobody, [20n, 30n]],
    ["nothing where it was promised more", 50n, [{ share: 0, amount: 70n }], nobody, [0n, 0n]],
    ["its part of what a return leaves", 110n, [{ share: null, amount: 40n }], nobody, [49n, 21n]],
    ["nothing where a return took all", 30n, [{ share: null, amount: 40n }], nobody, [0n, 0n]],
    [
      "the rest where an earlier payment was promised this money too",
      60n,
      [],
      { received: 40n, promised: [{ share: 0, amount: 70n }] },
      [0n, 30n],
    ],
    [
      "its own part where an earlier payment's money waits for a decision",
      80n,
      [],
      { received: 120n, promised: [] },
      [56n, 24n],
    ],
    [
      "its own part where an earlier payment's money goes back",
      80n,
      [],
      { received: 120n, promised: [{ share: null, amount: 120n }] },
      [56n, 24n],
    ],
    [
      "all of its money where an earlier payment has its own",
      60n,
      [],
      {
        received: 40n,
        promised: [
          { share: 0, amount: 28n },
          { share: 1, amount: 12n },
        ],
      },
      [42n, 18n],
    ],
    [
      "more where an earlier payment, short of money, gave it less",
      60n,
      [],
      {
        received: 40n,
        promised: [
          { share: 1, amount: 30n },
          { share: 0, amount: 10n },
        ],
      },
      [60n, 0n],
    ],
  ])("is %s", (_, received, promised, others, missing) => {
    expect(missingShares(recipients, { received, promised, others })).toEqual(missing)
  })

  it("takes all that nobody was promised of the payment's money, and never more", () => {
    const amount = fc.bigInt({ min: 0n, max: 1_000n })
    const promises = fc.array(fc.record({ share: fc.constantFrom(0, 1, null), amount }), { maxLength: 4 })
    const others = fc.record({ received: amount, promised: promises })
    fc.assert(
      fc.property(amount, promises, others, (received, promised, others) => {
        const missing = missingShares(recipients, { received, promised, others })
        const of = (rows: readonly { amount: bigint }[]) => sum(rows.map(row => row.amount))
        const taken = of(others.promised) - others.received
        const left = received - of(promised) - (taken > 0n ? taken : 0n)
        expect(sum(missing)).toBe(left > 0n ? left : 0n)
        for (const part of missing) expect(part).toBeGreaterThanOrEqual(0n)
      }),
    )
  })
})
