/** Answers of other services: read up to a limit, whatever length they announce. */

/** An answer exceeded its limit; no part of it is used. */
export class AnswerTooLarge extends Error {
  constructor(mostBytes: number) {
    super(`the answer is larger than ${mostBytes.toLocaleString("en-US")} bytes`)
    this.name = "AnswerTooLarge"
  }
}

/** The text of an answer of at most `mostBytes`; throws {@link AnswerTooLarge} and closes the connection beyond them. */
export async function boundedText(response: Response, mostBytes: number): Promise<string> {
  const chunks: Uint8Array[] = []
  let bytes = 0
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length
    // Leaving the loop cancels the body.
    if (bytes > mostBytes) throw new AnswerTooLarge(mostBytes)
    chunks.push(chunk)
  }
  return new TextDecoder().decode(Buffer.concat(chunks))
}
