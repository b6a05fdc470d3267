/** Submits the hash of a transfer that this browser sent, until the server knows it. */
import { useEffect } from "preact/hooks"
import type { CheckoutStatus, PayPage } from "../page-data.ts"
import { Refusal, submitHash } from "./api.ts"
import { type Memory, remember } from "./store.ts"

/** The wait before the second try; each later wait is twice as long. */
const AGAIN_MS = 5_000
const MAX_AGAIN_MS = 60_000

interface Given {
  page: PayPage
  status: CheckoutStatus
  memory: Memory
  /** Called when the server has accepted the hash, or refused it for good. */
  changed: () => void
}

/**
 * Submits a hash that the server does not know, repeatedly. The page must not forget a payment because of a reload, an
 * unreachable server, or too many requests from one address. Without the hash the transfer is still found, but later.
 */
export function useSubmission({ page, status, memory, changed }: Given): void {
  const { sessionId, submission } = status
  const { txHash, payer, sentAt } = memory
  const isUnknown = txHash !== undefined && submission === null && sentAt !== undefined
  useEffect(() => {
    if (!isUnknown) return
    let timer: ReturnType<typeof setTimeout> | undefined
    let isOver = false
    let waitMs = AGAIN_MS
    const submit = async () => {
      try {
        await submitHash(page, { id: sessionId, txHash, ...(payer === undefined ? {} : { payer }) })
      } catch (error) {
        const isLater =
          error instanceof Refusal && (error.isUnsure || /RATE_LIMITED|UNAVAILABLE|NOT_READY/.test(error.code))
        if (isOver) return
        if (isLater) {
          timer = setTimeout(submit, waitMs)
          waitMs = Math.min(2 * waitMs, MAX_AGAIN_MS)
          return
        }
        // It was sent, so the scan may still find it.
        remember(sessionId, { sentAt: undefined, givenUpAt: Date.now() })
      }
      if (!isOver) changed()
    }
    void submit()
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [isUnknown, page, sessionId, txHash, payer, changed])
  // From here on the server reports its progress.
  const isKnown = txHash !== undefined && submission?.txHash === txHash && sentAt !== undefined
  useEffect(() => {
    if (!isKnown) return
    remember(sessionId, { sentAt: undefined })
    changed()
  }, [isKnown, sessionId, changed])
}
