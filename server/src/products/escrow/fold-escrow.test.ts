import fc from "fast-check"
import { describe, expect, it } from "vitest"
import type { EscrowCallKind } from "../../platform/db/schema.ts"
import { type Call, type FoldedEscrow, foldEscrow, standingOf } from "./fold-escrow.ts"

const T = new Date("2026-06-01T12:00:00Z")
const later = new Date(T.getTime() + 3_600_000)
const call = (kind: EscrowCallKind, amount: number, change: Partial<Call> = {}): Call => ({
  kind,
  amount: BigInt(amount),
  state: "final",
  succeeded: true,
  deep: true,
  ...change,
})
const queued: Partial<Call> = { state: "queued", succeeded: null, deep: false }
const shallow: Partial<Call> = { state: "mined", deep: false }
const reverted: Partial<Call> = { state: "reverted", succeeded: false }
const cancelled: Partial<Call> = { ...queued, state: "cancelled" }
const fold = (calls: Call[], change: { reclaimed?: bigint; now?: Date } = {}) =>
  foldEscrow({ calls, reclaimed: change.reclaimed ?? 0n, expiresAt: later }, change.now ?? T)

describe("an escrow", () => {
  const held = call("reserve", 500)
  it.each<[string, Call[], Parameters<typeof fold>[1], Partial<FoldedEscrow>]>([
    ["nothing was signed", [], {}, { status: "pending", authorized: 0n }],
    ["its time is over", [], { now: later }, { status: "expired" }],
    ["a reservation is on its way", [call("reserve", 500, queued)], {}, { status: "verifying" }],
    ["and its time is over meanwhile", [call("reserve", 500, queued)], { now: later }, { status: "verifying" }],
    ["a reservation is not deep enough", [call("reserve", 500, shallow)], {}, { status: "verifying", authorized: 0n }],
    ["a reservation was cancelled", [call("reserve", 500, cancelled)], {}, { status: "pending" }],
    [
      "a reservation was cancelled, and it is over",
      [call("reserve", 500, cancelled)],
      { now: later },
      { status: "expired" },
    ],
    [
      "a reservation failed on chain, and it is over",
      [call("reserve", 500, reverted)],
      { now: later },
      { status: "failed" },
    ],
    ["reserved", [held], {}, { status: "authorized", authorized: 500n, capturable: 500n, freeToCapture: 500n }],
    ["reserved, after the end", [held], { now: later }, { status: "authorized" }],
    [
      "a capture is open",
      [held, call("capture", 200, queued)],
      {},
      { status: "authorized", capturable: 500n, freeToCapture: 300n },
    ],
    ["a capture failed", [held, call("capture", 200, reverted)], {}, { status: "authorized", freeToCapture: 500n }],
    ["a part is captured", [held, call("capture", 200)], {}, { status: "confirmed", captured: 200n, capturable: 300n }],
    [
      "a void is open",
      [held, call("void", 500, shallow)],
      {},
      { status: "authorized", freeToCapture: 0n, capturable: 500n },
    ],
    ["voided", [held, call("void", 500)], {}, { status: "voided", voided: 500n, capturable: 0n }],
    ["reclaimed", [held], { reclaimed: 500n }, { status: "voided", reclaimed: 500n, capturable: 0n }],
    [
      "captured, and the rest voided",
      [held, call("capture", 200), call("void", 300)],
      {},
      { status: "confirmed", capturable: 0n },
    ],
    [
      "a refund is open",
      [held, call("capture", 200), call("refund", 50, queued)],
      {},
      { status: "confirmed", refundable: 200n, freeToRefund: 150n },
    ],
    [
      "a part is refunded",
      [held, call("capture", 200), call("refund", 50)],
      {},
      { status: "partially_refunded", refundable: 150n },
    ],
    ["all is refunded", [held, call("capture", 200), call("refund", 200)], {}, { status: "refunded", refundable: 0n }],
    [
      "a reorg took the reservation",
      [call("reserve", 500, { ...queued, state: "assigned" }), call("capture", 200)],
      {},
      { status: "verifying", captured: 0n },
    ],
    [
      "a reorg took the capture",
      [held, call("capture", 200, { ...queued, state: "assigned" }), call("refund", 50)],
      {},
      { status: "authorized", refunded: 0n },
    ],
  ])("%s", (_name, calls, change, expected) => {
    expect(fold(calls, change)).toMatchObject(expected)
  })
})

/** What the contract would hold, by the calls that succeeded, in the order of their nonces. */
interface Chain {
  capturable: bigint
  refundable: bigint
  collected: boolean
}

function after({ capturable, refundable, collected }: Chain, { kind, amount }: Call): Chain | undefined {
  if (kind === "reserve") return collected ? undefined : { capturable: amount, refundable, collected: true }
  if (kind === "capture")
    return amount > capturable
      ? undefined
      : { capturable: capturable - amount, refundable: refundable + amount, collected }
  if (kind === "void") return capturable === 0n ? undefined : { capturable: 0n, refundable, collected }
  return amount > refundable ? undefined : { capturable, refundable: refundable - amount, collected }
}
const nothing: Chain = { capturable: 0n, refundable: 0n, collected: false }

interface Made extends Call {
  /** It fails whenever it is mined. */
  fails: boolean
}

/** Runs one escrow through generated steps: requests, and what the chain does with the calls. */
function live(steps: readonly { what: number; amount: number; fails: boolean; pick: number }[]): void {
  const made: Made[] = []
  /** In the order of their nonces. */
  const signed: Made[] = []
  const MAX = 1_000n
  const now = () => foldEscrow({ calls: made, reclaimed: 0n, expiresAt: later }, T)
  const make = (kind: EscrowCallKind, amount: bigint, fails: boolean) =>
    made.push({ kind, amount, fails, state: "queued", succeeded: null, deep: false })
  const check = () => {
    const { authorized, captured, voided, refunded, capturable, refundable, freeToCapture, freeToRefund, open } = now()
    expect([0n, MAX]).toContain(authorized)
    expect(captured + voided + capturable).toBe(authorized)
    expect(refunded + refundable).toBe(captured)
    expect(refunded <= captured && freeToCapture <= capturable && freeToRefund <= refundable).toBe(true)
    expect(open.reserve <= 1 && open.void <= 1).toBe(true)
    // All calls that may still succeed fit into the reserved amount.
    const asked = made.filter(each => (each.kind === "capture" || each.kind === "void") && standingOf(each) !== "ended")
    expect(asked.reduce((sum, each) => sum + each.amount, 0n) <= MAX).toBe(true)
  }
  for (const { what, amount, fails, pick } of steps) {
    const folded = now()
    const waiting = made.filter(({ state }) => state === "queued" || state === "held")
    const one = waiting[pick % Math.max(1, waiting.length)]
    const some = (most: bigint) => (most === 0n ? 0n : 1n + (BigInt(amount) % most))
    const mined = signed.filter(({ state }) => state === "mined")
    switch (what) {
      case 0:
        if (folded.status === "pending") make("reserve", MAX, fails)
        break
      case 1:
        if (folded.freeToCapture > 0n) make("capture", some(folded.freeToCapture), fails)
        break
      case 2:
        if (folded.capturable > 0n && folded.open.capture + folded.open.void === 0)
          make("void", folded.capturable, fails)
        break
      case 3:
        if (folded.freeToRefund > 0n) make("refund", some(folded.freeToRefund), fails)
        break
      case 4:
        if (one) one.state = pick % 5 === 0 ? "cancelled" : "held"
        break
      case 5:
        if (one) {
          one.state = "assigned"
          signed.push(one)
        }
        break
      case 6: {
        const next = signed.find(({ state }) => state === "assigned")
        if (!next) break
        const before = signed.slice(0, signed.indexOf(next)).filter(each => each.succeeded)
        const there = before.reduce((chain, each) => after(chain, each) ?? chain, nothing)
        next.succeeded = !next.fails && after(there, next) !== undefined
        next.state = "mined"
        break
      }
      case 7: {
        const shallowest = mined.find(({ deep }) => !deep)
        if (shallowest) shallowest.deep = true
        break
      }
      case 8: {
        const first = mined[0]
        if (first?.deep) first.state = first.succeeded ? "final" : "reverted"
        break
      }
      // A reorg: the newest blocks are gone, and the same bytes are sent again.
      default:
        // The rows are written one by one, and the escrow may be folded between any two of them.
        for (const each of mined.slice(pick % (mined.length + 1))) {
          Object.assign(each, { state: "assigned", succeeded: null, deep: false })
          check()
        }
    }
    check()
  }
  // Once every block is deep, the fold is what the contract holds.
  for (const each of signed.filter(({ state }) => state === "mined")) each.deep = true
  const done = signed.filter(({ state, succeeded }) => (state === "mined" || state === "final") && succeeded)
  const there = done.reduce((chain, each) => {
    const next = after(chain, each)
    expect(next, `the contract refuses a ${each.kind} of ${each.amount}`).toBeDefined()
    return next ?? chain
  }, nothing)
  const folded = now()
  expect({ capturable: folded.capturable, refundable: folded.refundable }).toEqual({
    capturable: there.capturable,
    refundable: there.refundable,
  })
}

it("adds up through every order of asking, signing, mining, failing and reorganizing, and agrees with the contract in the end", () => {
  const step = fc.record({
    what: fc.integer({ min: 0, max: 9 }),
    amount: fc.nat({ max: 1_000 }),
    fails: fc.nat({ max: 7 }).map(n => n === 0),
    pick: fc.nat({ max: 9 }),
  })
  // Begins reserved, partly captured, or partly refunded: random steps rarely get that far.
  const begun = [0, 5, 6, 7, 1, 5, 6, 7, 3, 5, 6, 7].map(what => ({ what, amount: 400, fails: false, pick: 0 }))
  const lives = fc.tuple(fc.constantFrom(0, 4, 8, 12), fc.array(step, { maxLength: 100 }))
  fc.assert(
    fc.property(lives, ([n, steps]) => live([...begun.slice(0, n), ...steps])),
    { numRuns: 600 },
  )
})
