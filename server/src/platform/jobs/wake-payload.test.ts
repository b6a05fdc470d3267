import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { joinNames, payerName, payloadsOf, readPayload } from "./wake-payload.ts"

const id = fc.stringMatching(/^(cs|pw|set)_[a-z0-9]{1,24}$/)
const name = fc.oneof(
  id,
  fc.uuid(),
  fc.tuple(id, fc.stringMatching(/^0x[0-9a-f]{40}$/)).map(([of, payer]) => payerName(of, payer)),
)

describe("the payloads of a wake-up", () => {
  it("name everything, or anything: none is lost, and each fits", () =>
    fc.assert(
      fc.property(fc.array(name, { maxLength: 3_000 }), names => {
        const payloads = payloadsOf("payments", names)
        expect(payloads.every(payload => Buffer.byteLength(payload) < 8_000)).toBe(true)
        const read = payloads.map(payload => readPayload(payload))
        expect(read.every(each => each?.channel === "payments")).toBe(true)
        const isAll = read.some(each => each?.names === undefined)
        if (!isAll) expect(new Set(read.flatMap(each => each?.names ?? []))).toEqual(new Set(names))
        else expect(payloads).toEqual(["payments"])
      }),
    ))

  it("name some thousand, and beyond that anything", () => {
    const names = (n: number) => Array.from({ length: n }, (_, i) => `cs_${`${i}`.padStart(24, "0")}`)
    expect(payloadsOf("payments", names(2_000)).length).toBe(8)
    expect(payloadsOf("payments", names(3_000))).toEqual(["payments"])
    expect(joinNames(names(1_000), names(1_500))).toHaveLength(1_500)
    expect(joinNames(names(1_000), names(2_001))).toBeUndefined()
    expect(joinNames(names(1), undefined)).toBeUndefined()
  })

  it("name anything where a name is not one word of ASCII", () => {
    for (const bad of ["cs_1 cs_2", "", "cs_é", "x".repeat(201)])
      expect(payloadsOf("payments", [bad])).toEqual(["payments"])
  })

  it("wake loops alone where nothing is named, and differ from those of anything", () => {
    expect(readPayload("payments")).toEqual({ channel: "payments", names: undefined })
    expect(payloadsOf("payments", []).map(readPayload)).toEqual([{ channel: "payments", names: [] }])
    expect(readPayload("access pw_1 0xab")).toBeUndefined()
  })
})
