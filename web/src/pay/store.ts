/** This browser's memory of a payment, so that a reload or a second tab neither forgets the payment nor pays again. */

export interface Memory {
  /** The hash of a transfer that was sent or submitted here. */
  txHash?: string
  /** The address that paid a paywall, or is about to. */
  payer?: string
  /** When a transfer was handed to a wallet that has not answered yet, in milliseconds. */
  sendingAt?: number
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

const keyOf = (id: string) => `sluice:${id}`
/** The page's own memory, for browsers that store nothing (private windows, blocked storage). */
const fallback = new Map<string, string>()

/** Returns what is remembered of a payment. */
export function recall(id: string): Memory {
  try {
    return JSON.parse(localStorage.getItem(keyOf(id)) ?? fallback.get(id) ?? "{}")
  } catch {
    return JSON.parse(fallback.get(id) ?? "{}")
  }
}

/** Changes what is remembered, and returns all of it. Undefined forgets a part. */
export function remember(id: string, change: Partial<{ [K in keyof Memory]: Memory[K] | undefined }>): Memory {
  const next = JSON.stringify({ ...recall(id), ...change })
  fallback.set(id, next)
  try {
    localStorage.setItem(keyOf(id), next)
  } catch {}
  return JSON.parse(next)
}

/** Calls `changed` when another tab remembers something of this payment. Returns a function that ends it. */
export function onOtherTab(id: string, changed: () => void): () => void {
  const listen = (event: StorageEvent) => {
    if (event.key === keyOf(id)) changed()
  }
  addEventListener("storage", listen)
  return () => removeEventListener("storage", listen)
}
