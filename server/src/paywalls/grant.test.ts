import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { accessEnd, FOREVER } from "./grant.ts"

const at = (seconds: number) => new Date(1_800_000_000_000 + seconds * 1_000)

describe("accessEnd", () => {
  it.each([
    ["no grant", [], null],
    ["one", [[0, 300]], 300],
    [
      "two at once add up",
      [
        [0, 300],
        [0, 300],
      ],
      600,
    ],
    [
      "a second while the first lasts adds its whole time",
      [
        [0, 300],
        [200, 300],
      ],
      600,
    ],
    [
      "a second after the first ended starts at its own",
      [
        [0, 300],
        [1_000, 300],
      ],
      1_300,
    ],
  ] as const)("%s", (_what, grants, end) => {
    expect(accessEnd(grants.map(([t, s]) => ({ grantedAt: at(t), durationS: BigInt(s) })))).toEqual(
      end === null ? null : at(end),
    )
  })

  it("is for ever with one that is, and never later than for ever", () => {
    expect(
      accessEnd([
        { grantedAt: at(0), durationS: 5n },
        { grantedAt: at(1), durationS: null },
      ]),
    ).toBe(FOREVER)
    expect(accessEnd([{ grantedAt: at(0), durationS: 10n ** 15n }])).toEqual(FOREVER)
  })

  it("loses exactly the time of one that is taken away, while all of it was still ahead", () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 1, max: 10_000 }), { minLength: 2, maxLength: 10 }),
        fc.nat(),
        (durations, pick) => {
          const grants = durations.map(s => ({ grantedAt: at(0), durationS: BigInt(s) }))
          const i = pick % grants.length
          const before = accessEnd(grants)?.getTime() ?? 0
          const after = accessEnd(grants.filter((_, j) => j !== i))?.getTime() ?? 0
          expect(before - after).toBe((durations[i] ?? 0) * 1_000)
        },
      ),
    )
  })
})
