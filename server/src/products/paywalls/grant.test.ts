import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { FOREVER, foldGrants, type LiveGrant } from "./grant.ts"

const at = (seconds: number) => new Date(1_800_000_000_000 + seconds * 1_000)

const timed = { calls: null, callsUsed: 0 }
const accessEnd = (grants: Pick<LiveGrant, "grantedAt" | "durationS">[]) =>
  foldGrants(
    grants.map(grant => ({ ...grant, ...timed })),
    at(0),
  ).expiresAt

describe("when access ends", () => {
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
    ).toEqual(FOREVER)
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

describe("the calls of grants", () => {
  const call = (seconds: number, durationS: bigint | null = 300n, callsUsed = 0, calls: number | null = 1) => ({
    grantedAt: at(seconds),
    durationS,
    calls,
    callsUsed,
  })

  it.each([
    ["one", [call(0)], 1, 300],
    ["one that is used", [call(0, 300n, 1)], 0, 300],
    ["two add up, time and calls", [call(0), call(60)], 2, 600],
    ["one that is used leaves its time to the next", [call(0, 300n, 1), call(60)], 1, 600],
    ["one that was left when its time ran out is gone", [call(0), call(301)], 1, 601],
    ["one that is bought in the last moment finds the other", [call(0), call(300)], 2, 600],
    ["without an end they stay", [call(0, null), call(9_999, null, 1)], 1, null],
    ["together with access whose calls aren't counted, none are", [call(0), call(60, 600n, 0, null)], null, 900],
    ["before access whose calls aren't counted is over", [call(0, 301n, 0, null), call(60)], null, 601],
    ["once access whose calls aren't counted is over", [call(0, 300n, 0, null), call(60)], 1, 600],
    ["after access without an end", [call(0, null, 0, null), call(60)], null, null],
  ])("%s", (_what, grants, callsLeft, end) => {
    expect(foldGrants(grants, at(300))).toMatchObject({ callsLeft, expiresAt: end === null ? FOREVER : at(end) })
  })

  it("are never more than were paid, in whatever order they are bought, used and revoked", () => {
    const step = fc.oneof(
      fc.record({ kind: fc.constant("buy" as const), afterS: fc.integer({ min: 0, max: 400 }) }),
      fc.record({ kind: fc.constant("use" as const), afterS: fc.integer({ min: 0, max: 200 }) }),
      fc.record({ kind: fc.constant("revoke" as const), afterS: fc.constant(0) }),
    )
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), steps => {
        let now = 0
        let grants: LiveGrant[] = []
        let bought = 0
        let used = 0
        for (const { kind, afterS } of steps) {
          now += afterS
          if (kind === "buy") {
            grants.push(call(now))
            bought++
          }
          if (kind === "revoke") grants = grants.slice(0, -1)
          const { since, expiresAt, callsLeft } = foldGrants(grants, at(now))
          // The grant that takeCall would find.
          const next = grants.find(each => each.grantedAt >= (since ?? FOREVER) && each.callsUsed < 1)
          expect((callsLeft ?? 0) > 0).toBe(next !== undefined)
          if (kind !== "use" || !expiresAt || expiresAt <= at(now) || !next) continue
          next.callsUsed++
          used++
          expect(next.callsUsed).toBeLessThanOrEqual(next.calls ?? 0)
          expect(foldGrants(grants, at(now))).toMatchObject({ callsLeft: (callsLeft ?? 0) - 1, expiresAt, since })
        }
        expect(used).toBeLessThanOrEqual(bought)
      }),
    )
  })

  it("are never more than were paid once the time is over in which they aren't counted, however the pricing model changes", () => {
    const step = fc.record({
      kind: fc.constantFrom("buy time", "buy a call", "use", "use"),
      afterS: fc.integer({ min: 0, max: 400 }),
      durationS: fc.integer({ min: 1, max: 600 }),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), steps => {
        const grants: LiveGrant[] = []
        let now = 0
        let bought = 0
        let used = 0
        // A second implementation, step by step: all paid period, which of it is free, and the calls in it.
        let end = 0
        let freeUntil = 0
        let left = 0
        for (const { kind, afterS, durationS } of steps) {
          now += afterS
          if (kind !== "use") {
            if (end < now) left = 0
            end = Math.max(end, now) + durationS
            if (kind === "buy time") freeUntil = end
            if (kind === "buy a call") {
              left++
              bought++
            }
            grants.push(call(now, BigInt(durationS), 0, kind === "buy time" ? null : 1))
            continue
          }
          const { since, expiresAt, callsLeft } = foldGrants(grants, at(now))
          if (!since || !expiresAt || expiresAt <= at(now)) {
            expect(now).toBeGreaterThanOrEqual(end)
            continue
          }
          expect({ expiresAt, callsLeft }).toEqual({ expiresAt: at(end), callsLeft: now < freeUntil ? null : left })
          if (callsLeft === null || callsLeft === 0) continue
          const next = grants.find(each => each.grantedAt >= since && each.callsUsed < (each.calls ?? 0))
          if (!next) throw new Error("there is a call left, and no grant has it")
          next.callsUsed++
          left--
          used++
        }
        expect(used).toBeLessThanOrEqual(bought)
      }),
    )
  })

  it("come to the same whether all are folded at once, or the first of them before", () => {
    const grants = fc.array(
      fc.record({
        afterS: fc.nat(400),
        durationS: fc.option(fc.integer({ min: 1, max: 600 }), { freq: 10 }),
        kind: fc.constantFrom("time", "call", "used"),
      }),
      { maxLength: 20 },
    )
    fc.assert(
      fc.property(grants, fc.nat(20), fc.nat(1_000), (steps, first, laterS) => {
        let now = 0
        const all = steps.map(({ afterS, durationS, kind }) => {
          now += afterS
          const used = kind === "used" ? 1 : 0
          return call(now, durationS === null ? null : BigInt(durationS), used, kind === "time" ? null : 1)
        })
        const earlier = all.slice(0, first)
        const later = all.slice(first)
        // A grant that is free when the first ones are folded may not be when the others are.
        const before = foldGrants(earlier, earlier.at(-1)?.grantedAt ?? at(0))
        expect(foldGrants(later, at(now + laterS), before)).toEqual(foldGrants(all, at(now + laterS)))
      }),
    )
  })
})
