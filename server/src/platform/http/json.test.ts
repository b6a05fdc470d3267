import fc from "fast-check"
import { describe, expect, it } from "vitest"
import { asWritten, parseJson } from "./json.ts"

describe("parseJson", () => {
  it("keeps numbers as they were written, in each object of its own", () => {
    const body = parseJson(
      '{"price":1.10,"other":{"price":33.33333300000000000000},"list":[{"percent":1e1}],"text":"2.50"}',
    ) as {
      other: object
      list: [object]
    }
    expect(asWritten(body, "price")).toBe("1.10")
    expect(asWritten(body.other, "price")).toBe("33.33333300000000000000")
    expect(asWritten(body.list[0], "percent")).toBe("1e1")
    expect(asWritten(body, "text")).toBe("2.50")
    expect(asWritten(body, "absent")).toBeUndefined()
    expect(asWritten(body, "other")).toBeUndefined()
  })

  it("reads what JSON.parse reads", () => {
    fc.assert(
      fc.property(fc.jsonValue(), value => {
        const text = JSON.stringify(value)
        fc.pre(!text.includes("__proto__") && !text.includes("\\u0000") && !/\\ud[89a-f]/.test(text))
        expect(parseJson(text)).toEqual(JSON.parse(text))
      }),
    )
  })

  it.each([
    ['{"a":', "not valid JSON"],
    ['{"a":"\\u0000"}', "NUL"],
    ['{"a\\u0000":1}', "NUL"],
    ['{"a":"\\ud800"}', "surrogate"],
    ['{"__proto__":{"x":1}}', "__proto__"],
    ['{"a":[1e999]}', "too large"],
    ['{"a":-1e999}', "too large"],
    ['{"a":9007199254740993}', "must be sent as a string in quotes"],
    ['{"a":[19.900000000000000001]}', "must be sent as a string in quotes"],
    ['{"a":1e-400}', "must be sent as a string in quotes"],
    [`{"a":0.1${"0".repeat(200_000)}1}`, "must be sent as a string in quotes"],
    [`{"a":1e-${"9".repeat(200_000)}}`, "must be sent as a string in quotes"],
    ['{"a":1,"a":1}', "the same field twice"],
    ['{"b":[{"a":1,"\\u0061":1}]}', "the same field twice"],
    ['{"b":{"a":1},"b":{}}', "the same field twice"],
    ["\ufeff{}", "U+FEFF"],
    ['{"a":\u00a01}', "U+00A0"],
    ["[".repeat(101) + "]".repeat(101), "100 levels"],
    ["[".repeat(2_300) + "]".repeat(2_300), "100 levels"],
    ["[".repeat(100_000) + "]".repeat(100_000), "100 levels"],
    [`${'{"a":['.repeat(51)}1${"]}".repeat(51)}`, "100 levels"],
  ])("refuses %.30s", (text, words) => {
    expect(() => parseJson(text)).toThrow(
      expect.objectContaining({
        code: "VALIDATION_ERROR",
        details: [expect.objectContaining({ message: expect.stringContaining(words) })],
      }),
    )
  })

  it("names the whole path of what it refuses, and the first of several", () => {
    const paths = [
      ['{"allowedOrigins":["https://a.example","\\u0000"]}', "allowedOrigins.1"],
      ['{"a":{"b":[{"c":"\\ud800"}]},"d":"\\u0000"}', "a.b.0.c"],
      ['{"a":{"b":{"c\\u0000":1}}}', "a.b.c\0"],
      ['{"splits":[{"percent":1e999}]}', "splits.0.percent"],
      ['"\\u0000"', ""],
    ] as const
    for (const [text, path] of paths)
      expect(() => parseJson(text), text).toThrow(
        expect.objectContaining({ details: [expect.objectContaining({ path })] }),
      )
  })

  it("takes a hundred levels, and as many things as there are beside each other", () => {
    const deep = `${"[".repeat(99)}1${"]".repeat(99)}`
    const text = `[${Array(1_000).fill(deep).join()}]`
    expect(parseJson(text)).toEqual(JSON.parse(text))
  })

  it("takes the same field in several objects, and its name in a text", () => {
    const text = '{"a":{"a":"\\"a\\":1"},"b":[{"a":1},{"a":9007199254740992},"a"],"c":"a\\\\"}'
    expect(parseJson(text)).toEqual(JSON.parse(text))
  })

  it("takes an empty body as none", () => {
    expect(parseJson("")).toBeUndefined()
  })
})
