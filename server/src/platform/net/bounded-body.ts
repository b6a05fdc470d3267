/** Reads answers of other services up to a maximum size, whatever length they announce. */

/** An answer exceeded its maximum size; no part of the answer is used. */
export class AnswerTooLarge extends Error {
  constructor(maxBytes: number) {
    super(`the answer is larger than ${maxBytes.toLocaleString("en-US")} bytes`)
    this.name = "AnswerTooLarge"
  }
}

const FIRST_BYTES = 4 * 1024

/** Collects the parts of a body. */
export interface BoundedBytes {
  /** Throws {@link AnswerTooLarge} if all parts together are too large. */
  add(part: Uint8Array): void
  all(): Buffer
}

/**
 * Collects parts up to `maxBytes`, copying them together as they arrive, because a million parts of one byte that were
 * stored separately held 185 MB.
 */
export function boundedBytes(maxBytes: number): BoundedBytes {
  let all = Buffer.allocUnsafe(Math.min(maxBytes, FIRST_BYTES))
  let bytes = 0
  return {
    add: part => {
      const end = bytes + part.length
      if (end > maxBytes) throw new AnswerTooLarge(maxBytes)
      if (end > all.length) {
        const larger = Buffer.allocUnsafe(Math.min(maxBytes, Math.max(end, 2 * all.length)))
        larger.set(all.subarray(0, bytes))
        all = larger
      }
      all.set(part, bytes)
      bytes = end
    },
    all: () => all.subarray(0, bytes),
  }
}

/**
 * Reads the text of an answer of at most `maxBytes`. If the answer is larger, it closes the connection and throws
 * {@link AnswerTooLarge}.
 */
export async function boundedText(response: Response, maxBytes: number): Promise<string> {
  const read = boundedBytes(maxBytes)
  // Leaving the loop cancels the body.
  for await (const part of response.body ?? []) read.add(part)
  return new TextDecoder().decode(read.all())
}
