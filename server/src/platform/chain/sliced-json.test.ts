import fc from "fast-check"
import { expect, it } from "vitest"
import { readJson, UselessAnswer } from "./sliced-json.ts"

/** Cuts bytes into parts of these lengths, over and over. */
function* cut(bytes: Buffer, lengths: readonly number[]): Generator<Buffer> {
  for (let at = 0, i = 0; at < bytes.length; i++) {
    const length = lengths[i % lengths.length] ?? 1
    yield bytes.subarray(at, at + length)
    at += length
  }
}

it("reads what JSON.parse reads, however it is cut and however large", async () => {
  // Long strings and many members make containers of all sizes, below and above a slice.
  const text = fc.constantFrom("\\", '"', '\\"', "]}", "é\u{1F600}", "plain").map(part => part.repeat(8_000))
  const small = fc.oneof(fc.jsonValue({ maxDepth: 2 }), fc.string({ unit: "binary", maxLength: 40 }), text)
  const many = fc
    .tuple(small, fc.nat(300))
    .map(([each, count]) => Array.from({ length: count }, () => [each, { each }]))
  const keyed = fc.dictionary(fc.string({ unit: "grapheme", maxLength: 12 }), fc.oneof(small, many), { maxKeys: 5 })
  const value = fc.oneof(small, many, keyed, fc.array(keyed, { maxLength: 3 }))
  const lengths = fc.array(fc.integer({ min: 1, max: 100_000 }), { minLength: 1, maxLength: 5 })
  let large = 0
  await fc.assert(
    fc.asyncProperty(value, lengths, fc.nat(2), async (value, lengths, indent) => {
      const text = JSON.stringify(value, null, indent)
      fc.pre(text.length < 2_000_000 && !text.includes("__proto__"))
      if (text.length > 100_000) large++
      const read = await readJson(cut(Buffer.from(text), lengths)).catch((error: Error) => error)
      // Thousands of empty lists are what the limit is for.
      if (read instanceof UselessAnswer) expect(read.message).toMatch(/values than its size/)
      else expect(JSON.stringify(read)).toBe(JSON.stringify(JSON.parse(text)))
    }),
    { numRuns: 150 },
  )
  expect(large).toBeGreaterThan(0)
})

it.each([
  ["", "not JSON"],
  ["[1,2", "cut"],
  ['["a', "cut"],
  ["[1,2]]", "not JSON"],
  ["[1}", "not JSON"],
  ["[1],[2]", "not JSON|nests"],
  [`[${"1,".repeat(100_000)}x]`, "not JSON|values than"],
  [`[${`"${"a".repeat(60)}",`.repeat(5_000)},1]`, "not JSON"],
  [`[${`"${"a".repeat(60)}",`.repeat(5_000)}{"a":1}}`, "not JSON"],
  ["[".repeat(100), "is nested too deeply"],
  [`[${"{},".repeat(1_000_000)}{}]`, "more values than its size explains"],
  [`[${"0,".repeat(1_000_000)}0]`, "more values than its size explains"],
])("refuses %.20j", async (text, words) => {
  await expect(readJson([Buffer.from(text)])).rejects.toThrow(new RegExp(words))
})

it("takes no prototype from an answer", async () => {
  const long = `"${"a".repeat(60)}"`
  const text = `{"__proto__":{"x":1},"list":[${Array(3_000).fill(long).join(",")}]}`
  const read = (await readJson([Buffer.from(text)])) as { list: string[]; x?: number }
  expect([read.x, read.list.length, Object.getPrototypeOf(read)]).toEqual([undefined, 3_000, Object.prototype])
})
