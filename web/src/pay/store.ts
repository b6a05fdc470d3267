/** This browser's memory of a payment, so that a reload or a second tab neither forgets the payment nor pays again. */

export interface Memory {
  /** The hash of a transfer that was sent or submitted here. */
  txHash?: string
  /** The address that paid a paywall, or is about to. */
  payer?: string
  /** When a wallet was asked for a transfer, in milliseconds, until it has answered. */
  sendingAt?: number
  /** When the wallet answered with `txHash`, in milliseconds, until the server knows it. */
  sentAt?: number
  /** When a signature was sent to the server without an answer, in milliseconds. */
  signedAt?: number
  /** When the payer stopped waiting for a transfer, in milliseconds. It may still arrive. */
  givenUpAt?: number
  /**
   * The nonce of each authorization, by payer and amount. An authorization signed again with the same nonce moves money
   * only once.
   */
  nonces?: Record<string, string>
  /** The checkout that was started from a link. */
  sessionId?: string
  /** The payer's answers to the fields that the merchant asks for. */
  answers?: Record<string, string>
  /** Whether the server has these answers. */
  answered?: boolean
}

/** How long a payment may still appear after it was given to a wallet or to the server, in milliseconds. */
const UNSURE_MS = 600_000

/** Whether something started at this time may still have an effect that is not visible yet. */
export const isUnsure = (at: number | undefined): boolean => at !== undefined && Date.now() - at < UNSURE_MS

const keyOf = (id: string) => `sluice:${id}`
/** The page's own memory, for browsers that store nothing (private windows, blocked storage). */
const fallback = new Map<string, string>()

/** Returns the stored memory of a payment. */
export function recall(id: string): Memory {
  try {
    return JSON.parse(localStorage.getItem(keyOf(id)) ?? fallback.get(id) ?? "{}")
  } catch {
    return JSON.parse(fallback.get(id) ?? "{}")
  }
}

/** Changes the stored memory, and returns all of it. Undefined forgets a part. */
export function remember(id: string, change: Partial<{ [K in keyof Memory]: Memory[K] | undefined }>): Memory {
  const next = JSON.stringify({ ...recall(id), ...change })
  fallback.set(id, next)
  try {
    localStorage.setItem(keyOf(id), next)
  } catch {}
  return JSON.parse(next)
}

/** Calls `changed` when another tab stores something about this payment. Returns a function that stops it. */
export function onOtherTab(id: string, changed: () => void): () => void {
  const listen = (event: StorageEvent) => {
    if (event.key === keyOf(id)) changed()
  }
  addEventListener("storage", listen)
  return () => removeEventListener("storage", listen)
}
