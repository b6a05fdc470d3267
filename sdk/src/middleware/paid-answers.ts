/** Paid answers, by payment. An answer that did not arrive is repeated to any request with the same payment. */
import type { Answer } from "./gate.ts"
import { TOKEN_MS } from "./retry-token.ts"

/** The most bytes to keep; the oldest answers go first. */
const MAX_BYTES = 50_000_000
/** The bytes that an answer takes in addition to its body. */
const OVERHEAD = 1_000

const encoder = new TextEncoder()

/** Opens a store in this process. Its content lasts a day, or until the process ends. */
export function paidAnswers(maxBytes = MAX_BYTES) {
  const kept = new Map<string, { answer: Promise<Answer | undefined>; size: number; end: number }>()
  let bytes = 0
  const drop = (name: string): void => {
    bytes -= kept.get(name)?.size ?? 0
    kept.delete(name)
  }
  return {
    /** Waits for an answer whose payment is in progress; undefined if there is none. */
    find: async (name: string | undefined): Promise<Answer | undefined> =>
      name === undefined ? undefined : await kept.get(name)?.answer,
    /** Keeps the answer of a payment from now on. If the answer is undefined, nothing was paid. */
    keep: async (name: string | undefined, answer: Promise<Answer | undefined>): Promise<void> => {
      const made = answer.catch(() => undefined)
      if (name === undefined) return
      drop(name)
      const entry = { answer: made, size: 0, end: Date.now() + TOKEN_MS }
      kept.set(name, entry)
      const whole = await made
      if (kept.get(name) !== entry) return
      if (!whole) return drop(name)
      entry.size = whole.body.length + OVERHEAD
      bytes += entry.size
      for (const [other, { end }] of kept) {
        if (bytes <= maxBytes && end > Date.now()) break
        drop(other)
      }
    },
  }
}

/**
 * The name of a payment for one request; undefined without the payer's own id (extension `payment-identifier`). Once a
 * payment was settled, everything else in it can be read on chain, and would let a stranger have the paid answer.
 */
export async function nameOfPayment(
  payload: Record<string, unknown>,
  request: () => Promise<unknown>,
): Promise<string | undefined> {
  const extensions = payload.extensions as Record<string, { info?: { id?: unknown } } | undefined> | undefined
  const id = extensions?.["payment-identifier"]?.info?.id
  if (typeof id !== "string" || id.length < 16) return undefined
  const digest = await crypto.subtle.digest("SHA-256", encoder.encode(JSON.stringify([payload, await request()])))
  return Array.from(new Uint8Array(digest), byte => byte.toString(16).padStart(2, "0")).join("")
}
