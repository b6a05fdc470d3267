import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { Token } from "../../platform/chain/network-facts.ts"
import { type Arrival, type Facts, foldSession, messageOf, transitions } from "./session-rules.ts"

const T = Date.parse("2026-06-01T12:00:00Z")
const at = (minutes: number) => new Date(T + minutes * 60_000)
const facts: Facts = {
  amount: 500n,
  expiresAt: at(60),
  usedUp: false,
  submitted: false,
  refused: false,
  ended: null,
  wrongAsset: false,
  scannedPastExpiry: true,
  accepted: null,
  beside: 0n,
  returnedSurplus: 0n,
}
const token = { symbol: "USDC", decimals: 2 } as Token
const arrival = (id: number, value: number, minute = 1, confirmed = true): Arrival => ({
  id: BigInt(id),
  value: BigInt(value),
  minedAt: at(minute),
  confirmed,
})
/** Part of what the merchant has accepted. */
const own = (id: number, value: number, minute = 1): Arrival => ({ ...arrival(id, value, minute), accepted: true })
const fold = (arrivals: Arrival[], change: Partial<Facts> = {}, minute = 2) =>
  foldSession({ ...facts, ...change }, arrivals, at(minute))
const ids = (arrivals: readonly Arrival[] = []) => arrivals.map(each => Number(each.id))

describe("a session", () => {
  it.each([
    ["nothing came", [], {}, 2, "pending", null],
    ["a hash was submitted", [], { submitted: true }, 2, "verifying", null],
    ["a transfer is not deep enough", [arrival(1, 500, 1, false)], {}, 2, "verifying", null],
    ["paid exactly", [arrival(1, 500)], {}, 2, "confirmed", null],
    ["paid in parts", [arrival(1, 200), arrival(2, 300)], {}, 2, "confirmed", null],
    ["paid in the last moment", [arrival(1, 500, 60)], {}, 90, "confirmed", null],
    ["too little", [arrival(1, 499)], {}, 2, "verifying", "underpaid"],
    ["too little when it is over", [arrival(1, 499)], {}, 61, "expired", "underpaid"],
    ["too much", [arrival(1, 501)], {}, 2, "confirmed", "overpaid"],
    ["too much, which was returned", [arrival(1, 501)], { returnedSurplus: 1n }, 2, "confirmed", null],
    [
      "too much, of which less is there than was returned",
      [arrival(1, 500)],
      { returnedSurplus: 1n },
      2,
      "confirmed",
      null,
    ],
    ["a little more later", [arrival(1, 500), arrival(2, 1)], {}, 2, "confirmed", "overpaid"],
    ["twice", [arrival(1, 500), arrival(2, 500)], {}, 2, "confirmed", "duplicate"],
    ["once in time and once late", [arrival(1, 500), arrival(2, 500, 70)], {}, 80, "confirmed", "duplicate"],
    ["late", [arrival(1, 500, 61)], {}, 62, "expired", "late"],
    ["half in time, half late", [arrival(1, 250), arrival(2, 250, 61)], {}, 62, "expired", "late"],
    ["too late, but a hash is still looked at", [], { submitted: true }, 61, "verifying", null],
    ["over", [], {}, 61, "expired", null],
    ["over, but not looked at so far", [], { scannedPastExpiry: false }, 61, "pending", null],
    ["a hash that was no payment", [], { refused: true }, 2, "pending", null],
    ["only hashes that were no payment, when it is over", [], { refused: true }, 61, "failed", null],
    ["too little and a wrong hash, when it is over", [arrival(1, 9)], { refused: true }, 61, "expired", "underpaid"],
    ["expired, then a wrong hash", [], { refused: true, ended: "expired" }, 62, "expired", null],
    [
      "failed, then another wrong hash",
      [],
      { refused: true, ended: "failed", scannedPastExpiry: false },
      62,
      "failed",
      null,
    ],
    ["a hash that was no payment, then a payment", [arrival(1, 500)], { refused: true }, 2, "confirmed", null],
    ["another token", [], { wrongAsset: true }, 2, "pending", "wrong_asset"],
    ["another token, then the right one", [arrival(1, 500)], { wrongAsset: true }, 2, "confirmed", null],
    ["paid when the link was used up", [arrival(1, 500)], { usedUp: true }, 2, "failed", "duplicate"],
    ["too little, and accepted", [own(1, 300)], { accepted: { exception: "underpaid" } }, 2, "confirmed", "underpaid"],
    ["late, and accepted", [own(1, 500, 61)], { accepted: { exception: "late" } }, 62, "confirmed", "late"],
    ["another token, and accepted", [], { accepted: { exception: "wrong_asset" } }, 62, "confirmed", "wrong_asset"],
    [
      "accepted, then paid in full",
      [own(1, 300), arrival(2, 500)],
      { accepted: { exception: "underpaid" } },
      2,
      "confirmed",
      "duplicate",
    ],
    [
      "accepted, then a little more",
      [own(1, 300), arrival(2, 2)],
      { accepted: { exception: null } },
      2,
      "confirmed",
      "overpaid",
    ],
  ] as const)("%s", (_what, arrivals, change, minute, status, exception) => {
    expect(fold([...arrivals], change, minute)).toMatchObject({ status, exception })
  })

  it("keeps what pays apart from what does not", () => {
    const folded = fold([arrival(1, 200), arrival(2, 300), arrival(3, 40), arrival(4, 500, 70)])
    expect([ids(folded.paid), ids(folded.rest?.arrivals), folded.rest?.exception]).toEqual([
      [1, 2],
      [3, 4],
      "duplicate",
    ])
    expect(folded.received).toBe(1_040n)
  })

  it("loses no transfer and uses none twice, whatever arrives; says the same whenever it is asked again", () => {
    const arrivals = fc.array(
      fc.record({
        value: fc.integer({ min: 1, max: 900 }),
        minute: fc.integer({ min: 0, max: 90 }),
        deep: fc.boolean(),
      }),
      { maxLength: 12 },
    )
    fc.assert(
      fc.property(arrivals, fc.integer({ min: 0, max: 120 }), fc.boolean(), (rows, minute, usedUp) => {
        const all = rows.map((row, i) => arrival(i, row.value, row.minute, row.deep))
        const folded = fold(all, { usedUp }, minute)
        const used = [...folded.paid, ...(folded.rest?.arrivals ?? [])]
        const deep = all.filter(each => each.confirmed)
        expect(ids(used).sort()).toEqual(ids(deep).sort())
        expect(folded.received).toBe(deep.reduce((total, each) => total + each.value, 0n))
        const paid = folded.paid.reduce((total, each) => total + each.value, 0n)
        expect(paid >= 500n).toBe(folded.status === "confirmed")
        // The last transfer is needed: without it the sum would be too small.
        if (paid > 0n) expect(paid - (folded.paid.at(-1)?.value ?? 0n) < 500n).toBe(true)
        expect(fold(all, { usedUp }, minute)).toEqual(folded)
      }),
    )
  })

  it("goes only where it may, as transfers come, deepen, go and time passes", () => {
    const step = fc.record({
      value: fc.integer({ min: 0, max: 700 }),
      minutes: fc.integer({ min: 0, max: 40 }),
      kind: fc.constantFrom(
        "arrive",
        "deepen",
        "gone",
        "submit",
        "refuse",
        "use up",
        "free",
        "other token",
        "accept",
        "return",
        "take back",
      ),
    })
    fc.assert(
      fc.property(fc.array(step, { maxLength: 20 }), steps => {
        let minute = 0
        let all: Arrival[] = []
        let change: Partial<Facts> = {}
        let status = fold(all, change, minute).status
        for (const { value, minutes, kind } of steps) {
          minute += minutes
          if (kind === "arrive" && value > 0) all = [...all, arrival(all.length, value, minute, false)]
          if (kind === "deepen") all = all.map(each => ({ ...each, confirmed: true }))
          if (kind === "gone") all = all.slice(1)
          if (kind === "submit") change = { ...change, submitted: minute <= 60 }
          if (kind === "refuse") change = { ...change, submitted: false, refused: true }
          if (kind === "use up" || kind === "free") change = { ...change, usedUp: kind === "use up" }
          if (kind === "other token") change = { ...change, wrongAsset: true }
          const now = fold(all, change, minute)
          if (kind === "accept" && now.rest && now.status !== "confirmed") {
            const accepted = new Set(now.rest.arrivals)
            all = all.map(each => ({ ...each, accepted: accepted.has(each) }))
            change = { ...change, accepted: { exception: now.rest.exception } }
          }
          if (kind === "return") all = all.filter(each => !now.rest?.arrivals.includes(each))
          if (kind === "take back" && change.accepted) {
            all = all.filter(each => !each.accepted)
            change = { ...change, accepted: null }
          }
          const ended = minute > 60 && (status === "failed" || status === "expired") ? status : null
          const next = fold(all, { ...change, ended }, minute).status
          // Nothing that a stranger can submit ends a session before its time.
          if (minute <= 60 && next === "failed") expect(change.usedUp).toBe(true)
          if (next !== status) expect(transitions[status]).toContain(next)
          status = next
        }
      }),
      { numRuns: 3_000 },
    )
  })
})

describe("its words", () => {
  const say = (arrivals: Arrival[], change: Partial<Facts> = {}, minute = 2, reason?: string) =>
    messageOf({ ...fold(arrivals, change, minute), amount: 500n }, token, reason)
  it.each([
    ["Send 5.00 USDC.", []],
    ["4.99 of 5.00 USDC arrived; send 0.01 more.", [arrival(1, 499)]],
    ["The payment is confirmed.", [arrival(1, 500)]],
    ["The payment is confirmed. 7.00 of 5.00 USDC arrived; ask the merchant for the rest.", [arrival(1, 700)]],
  ])("%s", (words, arrivals) => expect(say(arrivals)).toBe(words))

  it("say why a relay failed, and what became of late money", () => {
    expect(say([], {}, 2, "The transaction failed.")).toBe("The transaction failed.")
    expect(say([], { refused: true }, 2)).toBe("Send 5.00 USDC.")
    expect(say([], { refused: true }, 70)).toMatch(/^The time to pay has ended, and no submitted transaction/)
    expect(say([arrival(1, 500, 61)], {}, 70)).toMatch(/^The payment arrived after the time to pay/)
    expect(say([arrival(1, 9)], {}, 70)).toMatch(/^0.09 of 5.00 USDC arrived before the time to pay ended/)
    expect(say([], {}, 70)).toBe("The time to pay has ended. Start a new checkout.")
    expect(say([arrival(1, 500)], { usedUp: true })).toMatch(/used up by another payment/)
  })
})
