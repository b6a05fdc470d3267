import fc from "fast-check"
import { expect, it } from "vitest"
import type { PayoutState } from "../../platform/db/schema.ts"
import { type Call, foldEscrow, standingOf } from "./fold-escrow.ts"
import { refundable, shownStatus, statusByChain, totalWith } from "./refund.ts"

const now = new Date("2026-01-01T00:00:00Z")
const later = new Date(now.getTime() + 86_400_000)
const reserved = (amount: bigint, captured: bigint): Call[] => [
  { kind: "reserve", amount, state: "final", succeeded: true, deep: true },
  { kind: "capture", amount: captured, state: "mined", succeeded: true, deep: true },
]
const fold = (calls: readonly Call[]) => foldEscrow({ calls, reclaimed: 0n, expiresAt: later }, now)

const ends: Pick<Call, "state" | "succeeded" | "deep">[] = [
  { state: "queued", succeeded: null, deep: false },
  { state: "held", succeeded: null, deep: false },
  { state: "assigned", succeeded: null, deep: false },
  { state: "mined", succeeded: true, deep: false },
  { state: "mined", succeeded: false, deep: true },
  { state: "mined", succeeded: true, deep: true },
  { state: "final", succeeded: true, deep: true },
  { state: "reverted", succeeded: false, deep: true },
  { state: "cancelled", succeeded: null, deep: false },
]

it("whatever is asked for, and however refunds end, no more goes back than was captured, and each total is what counts", () => {
  const asked = fc.array(fc.record({ amount: fc.bigInt(1n, 40n), end: fc.constantFrom(...ends) }), { maxLength: 12 })
  fc.assert(
    fc.property(fc.bigInt(1n, 100n), fc.bigInt(0n, 20n), asked, (captured, released, refunds) => {
      const calls = reserved(captured + released, captured)
      for (const { amount, end } of refunds) {
        const { status, freeToRefund: left } = fold(calls)
        const most = refundable({ status, left, refundBy: later, now })
        if (typeof most === "string" || amount > most) continue
        calls.push({ kind: "refund", amount, ...end })
      }
      const made = calls.filter(({ kind }) => kind === "refund")
      const sumOf = (of: readonly Call[]) => of.reduce((sum, { amount }) => sum + amount, 0n)
      expect(sumOf(made.filter(call => standingOf(call) !== "ended"))).toBeLessThanOrEqual(captured)
      let sent = { total: 0n, status: "confirmed" }
      for (const { amount } of made.filter(call => standingOf(call) === "counts"))
        sent = totalWith(amount, { captured, before: sent.total })
      expect(sent).toEqual({ total: fold(calls).refunded, status: fold(calls).status })
    }),
  )
})

it("only captured payments are refunded, in their time, and a refusal says why", () => {
  const why = (given: Partial<Parameters<typeof refundable>[0]>) =>
    refundable({ status: "confirmed", left: 5n, refundBy: later, now, ...given })
  expect(why({})).toBe(5n)
  expect(why({ status: "partially_refunded", left: 1n })).toBe(1n)
  expect(why({ left: 0n })).toMatch(/fully refunded, or will be/)
  expect(why({ status: "refunded", left: 0n })).toBe("This checkout is fully refunded.")
  expect(why({ status: "authorized" })).toMatch(/payments\/void/)
  for (const status of ["pending", "verifying", "voided", "failed", "expired"] as const)
    expect(why({ status })).toMatch(`this checkout is ${status}.`)
  expect(why({ now: new Date(later.getTime() - 1) })).toBe(5n)
  expect(why({ now: later })).toMatch(/ended at .*payout wallet/)
})

it("a refund's status follows its call: a reorg reverses a success, an end stays", () => {
  const call = (
    state: PayoutState,
    held_reason: "allowance" | "balance" | null = null,
    { behind = false, ours = true } = {},
  ) => ({
    state,
    held_reason,
    held_detail: null,
    behind,
    ours,
    notified_at: null,
  })
  expect(ends.map(end => statusByChain(end, standingOf(end) === "counts"))).toEqual([
    ...Array(5).fill("pending"),
    "succeeded",
    "succeeded",
    "failed",
    "failed",
  ])
  expect(shownStatus("pending", call("held", "allowance"))).toBe("needs_approval")
  expect(shownStatus("pending", call("held", "allowance", { behind: true }))).toBe("pending")
  expect(shownStatus("pending", call("held", "allowance", { ours: false }))).toBe("pending")
  expect(shownStatus("pending", call("held", "balance"))).toBe("pending")
  expect(shownStatus("failed", call("cancelled"))).toBe("failed")
})
