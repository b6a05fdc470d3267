import { describe, expect, it } from "vitest"
import { AnswerTooLarge, boundedText } from "./bounded-body.ts"

/** An answer whose parts all reuse one piece of memory: a reader that keeps the parts would see the last one only. */
function answerOf(text: string, partBytes: number): Response {
  const bytes = Buffer.from(text)
  const part = Buffer.alloc(partBytes)
  let at = 0
  const body = new ReadableStream<Uint8Array>(
    {
      pull: controller => {
        if (at >= bytes.length) return controller.close()
        const copied = bytes.copy(part, 0, at, at + partBytes)
        at += copied
        controller.enqueue(part.subarray(0, copied))
      },
    },
    { highWaterMark: 0 },
  )
  return new Response(body)
}

describe("the text of an answer", () => {
  const text = Array.from({ length: 9_001 }, (_, n) => `${n % 7}é`).join("")
  const bytes = Buffer.byteLength(text)

  it.each([1, 2, 3, 4_095, 4_096, 4_097, 100_000])(
    "is whole in parts of %i bytes, of which none is kept",
    async size => {
      expect(await boundedText(answerOf(text, size), bytes)).toBe(text)
      expect(await boundedText(answerOf(text, size), 100_000)).toBe(text)
      await expect(boundedText(answerOf(text, size), bytes - 1)).rejects.toThrow(AnswerTooLarge)
    },
  )

  it("is empty where there is none", async () => {
    expect(await boundedText(new Response(null), 0)).toBe("")
    expect(await boundedText(answerOf("", 1), 10)).toBe("")
  })
})
