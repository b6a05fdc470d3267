import { describe, expect, it } from "vitest"
import { receiptBackoffMs } from "./judge-submissions.ts"

describe("receiptBackoffMs", () => {
  it("starts at five seconds, ends at an hour, and asks fewer than 40 times a day", () => {
    expect(receiptBackoffMs(0)).toBe(5_000)
    expect(receiptBackoffMs(1_000_000)).toBe(3_600_000)
    let asked = 0
    for (let t = 0; t < 86_400_000; t += receiptBackoffMs(asked)) asked++
    expect(asked).toBeLessThan(40)
  })
})
