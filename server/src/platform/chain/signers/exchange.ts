/** One request to a signer over HTTP. */
// I/O: sends it.
import { AnswerTooLarge, boundedText } from "../../net/bounded-body.ts"
import { SignerError } from "../signer.ts"

/** The length of a list of a few thousand keys. */
export const MAX_BYTES = 1024 * 1024

/**
 * Returns the text of an answer with status 200; throws a {@link SignerError} for any other answer. Redirects are not
 * followed.
 */
export async function exchange(
  url: string,
  { body, headers = {} }: { body?: object; headers?: Record<string, string> },
  signal: AbortSignal,
): Promise<string> {
  const response = await fetch(url, {
    method: body ? "POST" : "GET",
    headers: { ...headers, ...(body ? { "content-type": "application/json" } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
    redirect: "manual",
    signal,
  }).catch(error => {
    throw signal.aborted ? error : new SignerError(`can't be reached: ${causeOf(error)}`, { cause: error })
  })
  const text = await boundedText(response, MAX_BYTES).catch(error => {
    if (error instanceof AnswerTooLarge) throw new SignerError(`answered too much: ${error.message}`)
    throw error
  })
  if (response.status !== 200) {
    // Some proxies send back what they received.
    const words = oneLine(withoutSecrets(text, Object.values(headers)))
    throw new SignerError(`answered HTTP ${response.status}: ${words || "no text"}`)
  }
  return text
}

/** The cause that undici hides behind "fetch failed". */
function causeOf(error: unknown): string {
  const { code, message } = ((error as Error).cause ?? error) as NodeJS.ErrnoException
  return oneLine(code ?? message)
}

/** Removes these values, and the words in them, from a text. */
export const withoutSecrets = (text: string, secrets: readonly string[]): string =>
  secrets
    .flatMap(secret => [secret, ...secret.split(" ")])
    .filter(secret => secret.length > MIN_SECRET)
    .reduce((rest, secret) => rest.replaceAll(secret, "[secret]"), text)

/** A shorter word is not secret, for example "Bearer". */
const MIN_SECRET = 8
const MAX_CHARACTERS = 300

/** A signer's message for the log: one line, and short. */
export const oneLine = (text: string): string =>
  text
    .replace(/[\p{Cc}\s]+/gu, " ")
    .trim()
    .slice(0, MAX_CHARACTERS)
