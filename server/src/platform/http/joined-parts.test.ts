import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { joinedParts } from "./joined-parts.ts"

describe("joined parts", () => {
  it("are the same bytes in the same order, whenever they are taken, and hold as many blocks as the bytes need", () => {
    const step = fc.oneof(fc.uint8Array({ maxLength: 40 }), fc.constant("take" as const))
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 32 }), fc.array(step, { maxLength: 200 }), (blockBytes, steps) => {
        const parts = joinedParts(blockBytes)
        const out: Uint8Array[] = []
        const take = () => {
          const part = parts.take()
          if (part) out.push(part)
          return part !== undefined
        }
        for (const step of steps) {
          if (step === "take") take()
          else if (!parts.add(step)) {
            const before = out.length
            take()
            if (!parts.add(step)) {
              expect(step.length).toBeGreaterThan(blockBytes)
              out.push(step)
            } else expect(out.length).toBe(before + 1)
          }
        }
        take()
        expect(take()).toBe(false)
        const given = steps.filter(step => step !== "take")
        expect(Buffer.concat(out)).toEqual(Buffer.concat(given))
      }),
    )
  })

  it("of a byte at a time are in one block until it is full", () => {
    const parts = joinedParts(1_000)
    const taken = Array.from({ length: 1_000 }, (_, n) => {
      expect(parts.add(Buffer.from([n % 256]))).toBe(true)
      return parts.take()
    })
    const places = taken.map(part => part?.byteOffset ?? -1)
    expect(new Set(taken.map(part => part?.buffer)).size).toBe(1)
    expect(places).toEqual(places.map((_, n) => (places[0] ?? 0) + n))
  })
})
