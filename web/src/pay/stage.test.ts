import { expect, it } from "vitest"
import type { CheckoutStatus } from "../page-data.ts"
import { stageOf } from "./stage.ts"

const open = {
  status: "pending",
  amountReceived: "0.00",
  arriving: "0.00",
  missing: "5.00",
  over: false,
  stale: false,
  paused: false,
  relaying: false,
  submission: null,
  payTo: "0x1",
} as unknown as CheckoutStatus
const HASH = `0x${"1".repeat(64)}`

it("is not expired while nobody can see whether something arrived in time", () => {
  expect(stageOf({ ...open, over: true }, {})).toBe("expired")
  expect(stageOf({ ...open, over: true, stale: true }, {})).toBe("unknown")
  const reservation = { terms: {} } as CheckoutStatus["reservation"] & object
  expect(stageOf({ ...open, over: true, stale: true, reservation }, {})).toBe("unknown")
})

it("is sent while a transfer of this browser may not be known to the server yet", () => {
  expect(stageOf(open, { txHash: HASH, isSending: true })).toBe("sent")
  expect(stageOf(open, { txHash: HASH })).toBe("pay")
  const refused = { txHash: HASH, status: "failed" } as CheckoutStatus["submission"]
  expect(stageOf({ ...open, submission: refused }, { txHash: HASH, isSending: true })).toBe("pay")
})

it("asks for no rest once the time is over, while a part is being confirmed", () => {
  const part = { ...open, arriving: "2.00", missing: "3.00" }
  expect(stageOf(part, {})).toBe("part")
  expect(stageOf({ ...part, over: true }, {})).toBe("confirming")
})
