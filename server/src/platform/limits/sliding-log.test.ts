import { describe, expect, it } from "vitest"
import { memoryLog } from "./sliding-log.ts"

const windowMs = 60_000
const log = () => memoryLog({ windowMs, maxKeys: 1_000 })

describe("memoryLog", () => {
  it("counts all buckets or none, and a refusal does not lengthen the wait", () => {
    const limits = log()
    const counts = [
      { key: "route", limit: 2 },
      { key: "public", limit: 5 },
    ]
    expect(limits.admit(counts, 0)).toEqual({ admitted: true, waitMs: 0, limit: 2, remaining: 1, resetMs: windowMs })
    limits.admit(counts, 1_000)
    for (let t = 2_000; t < 50_000; t += 1_000)
      expect(limits.admit(counts, t)).toMatchObject({ admitted: false, waitMs: windowMs - t, remaining: 0 })
    expect(limits.admit([{ key: "public", limit: 5 }], 50_000).remaining).toBe(2)
    expect(limits.admit(counts, windowMs).admitted).toBe(true)
  })

  it("keeps at most its maximum of keys, and always those that were used last", () => {
    const limits = memoryLog({ windowMs, maxKeys: 10 })
    for (let i = 0; i < 1_000; i++) {
      limits.admit([{ key: "kept", limit: 5_000 }], i)
      limits.admit([{ key: `caller ${i}`, limit: 5 }], i)
    }
    expect(limits.size).toBeLessThanOrEqual(10)
    expect(limits.admit([{ key: "kept", limit: 5_000 }], 1_000).remaining).toBe(5_000 - 1_001)
    for (let i = 996; i < 1_000; i++) expect(limits.admit([{ key: `caller ${i}`, limit: 5 }], 1_000).remaining).toBe(3)
  })

  it("does not forget a refused caller either, whatever other callers come", () => {
    const limits = memoryLog({ windowMs, maxKeys: 10 })
    limits.admit([{ key: "refused", limit: 1 }], 0)
    for (let i = 0; i < 1_000; i++) {
      expect(limits.admit([{ key: "refused", limit: 1 }], i).admitted).toBe(false)
      limits.admit([{ key: `caller ${i}`, limit: 5 }], i)
    }
  })

  it("does not grow past its maximum with a million callers", () => {
    const limits = memoryLog({ windowMs, maxKeys: 100_000 })
    for (let i = 0; i < 1_000_000; i++) limits.admit([{ key: `caller ${i}`, limit: 5 }], i)
    expect(limits.size).toBeLessThanOrEqual(100_000)
  })
})
