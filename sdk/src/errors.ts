/** The only error class of this package. */
import type { ErrorCode } from "./resources.ts"

/** Errors that this package itself detects: the service could not be reached, or its answer can't be read. */
export type ClientErrorCode = "CONNECTION_FAILED" | "TIMEOUT" | "UNREADABLE_ANSWER"

/** One fault of a request: the path of the field, and what is wrong with it. */
export interface ErrorDetail {
  path?: string
  message: string
  [more: string]: unknown
}

interface Facts {
  code: ErrorCode | ClientErrorCode
  status?: number | undefined
  requestId?: string | undefined
  details?: ErrorDetail[] | undefined
  retryAfter?: number | undefined
  idempotencyKey?: string | undefined
  docUrl: string
  /** Every field of the answer. */
  body?: Record<string, unknown> | undefined
}

/** Statuses that may change if the same request is sent again. */
const isPassing = (status: number): boolean => [408, 425, 429].includes(status) || (status >= 500 && status !== 501)

/**
 * Why a call failed. `code` is stable and says what to do; `message` is for people and may change. `idempotencyKey` is
 * the key that was sent. Send it again: if the request did take effect, you get its first answer.
 *
 * @example catch (error) { if (error instanceof SluiceError && error.code === "NOT_FOUND") … }
 */
export class SluiceError extends Error {
  override readonly name = "SluiceError"
  readonly code: ErrorCode | ClientErrorCode
  /** The HTTP status; undefined if no answer came. */
  readonly status: number | undefined
  /** Give it to the operator when you ask for help: it is in the service's log. */
  readonly requestId: string | undefined
  readonly details: ErrorDetail[]
  /** Seconds to wait, if the service gave them. */
  readonly retryAfter: number | undefined
  /** Whether the same request may succeed later. */
  readonly retryable: boolean
  readonly idempotencyKey: string | undefined
  /** The page that explains the code. */
  readonly docUrl: string
  /** Every field of the answer, such as the data to sign of `WALLET_SIGNATURE_REQUIRED`. */
  readonly body: Record<string, unknown>

  constructor(message: string, facts: Facts, options?: ErrorOptions) {
    super(message, options)
    this.code = facts.code
    this.status = facts.status
    this.requestId = facts.requestId
    this.details = facts.details ?? []
    this.retryAfter = facts.retryAfter
    this.retryable = facts.status === undefined || isPassing(facts.status) || facts.code === "IDEMPOTENCY_IN_PROGRESS"
    this.idempotencyKey = facts.idempotencyKey
    this.docUrl = facts.docUrl
    this.body = facts.body ?? {}
  }
}
