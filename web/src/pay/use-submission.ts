/** Submits the hash of a transfer that this browser sent, until the server knows it. */
import { useEffect } from "preact/hooks"
import type { CheckoutStatus, PayPage } from "../page-data.ts"
import { Refusal, submitHash } from "./api.ts"
import { isUnsure, type Memory, remember } from "./store.ts"

const AGAIN_MS = 5_000

interface Given {
  page: PayPage
  status: CheckoutStatus
  memory: Memory
  /** Called when the server has taken the hash, or refused it for good. */
  changed: () => void
}

/**
 * Submits a hash that the server does not know, again and again: a reload, a server that could not be reached, or too
 * many requests of one address must not make the page forget a payment. Without it the transfer is still found, later.
 */
export function useSubmission({ page, status, memory, changed }: Given): void {
  const { sessionId, submission } = status
  const { txHash, payer, sendingAt } = memory
  const isUnknown = txHash !== undefined && submission === null && isUnsure(sendingAt)
  useEffect(() => {
    if (!isUnknown) return
    let timer: ReturnType<typeof setTimeout> | undefined
    let isOver = false
    const submit = async () => {
      try {
        await submitHash(page, { id: sessionId, txHash, ...(payer === undefined ? {} : { payer }) })
      } catch (error) {
        const isLater = error instanceof Refusal && (error.isUnsure || /RATE_LIMITED|UNAVAILABLE/.test(error.code))
        if (isOver) return
        if (isLater) {
          timer = setTimeout(submit, AGAIN_MS)
          return
        }
        remember(sessionId, { sendingAt: undefined })
      }
      if (!isOver) changed()
    }
    void submit()
    return () => {
      isOver = true
      clearTimeout(timer)
    }
  }, [isUnknown, page, sessionId, txHash, payer, changed])
  // From here on the server says what becomes of it.
  const isKnown = txHash !== undefined && submission?.txHash === txHash && sendingAt !== undefined
  useEffect(() => {
    if (!isKnown) return
    remember(sessionId, { sendingAt: undefined })
    changed()
  }, [isKnown, sessionId, changed])
}
