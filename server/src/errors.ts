/**
 * Every error a caller can meet, declared once: its code, its HTTP status and its words.
 *
 * A throw site names the code and, where it helps, the details; it never names a status.
 */

/** A fault at one place of the input; `path` is dotted (`recipients.0.address`), empty for the whole body. */
export interface ErrorDetail {
  path: string
  message: string
}

export const errorTable = {
  VALIDATION_ERROR: { status: 400, message: "The request is not valid; `details` names each fault." },
  INVALID_TX_HASH: { status: 400, message: "`txHash` must be a transaction hash: 0x and 64 hexadecimal digits." },
  UNAUTHORIZED: { status: 401, message: "A valid access token is needed: `Authorization: Bearer <token>`." },
  SANCTIONS_MATCH: { status: 403, message: "This address is on a sanctions list and can't be served." },
  SIGNUP_CLOSED: {
    status: 403,
    message: "The token is valid, but this installation takes new merchants by invitation only. Ask its operator.",
  },
  NOT_FOUND: { status: 404, message: "There is nothing at this address. Check the path, the method and the id." },
  PAYWALL_NOT_FOUND: { status: 404, message: "No paywall has this id." },
  PAYMENT_NOT_FOUND: {
    status: 404,
    message: "No payment with this hash and address was submitted to this paywall. Submit it first.",
  },
  ALREADY_VERIFIED: { status: 409, message: "This transaction has already granted access to this paywall." },
  PAYOUT_ADDRESS_REQUIRED: {
    status: 409,
    message: "Set the address your money goes to first: PUT /api/console/settings { payoutAddress }.",
  },
  SLUG_TAKEN: { status: 409, message: "This slug is already in use. Choose another." },
  IDEMPOTENCY_IN_PROGRESS: {
    status: 409,
    message: "The first request with this Idempotency-Key is still running. Try again in a moment, with the same key.",
  },
  PAYLOAD_TOO_LARGE: { status: 413, message: "The request body is too large; 256 KB is the most." },
  UNSUPPORTED_MEDIA_TYPE: { status: 415, message: "Send the body as JSON, with `Content-Type: application/json`." },
  IDEMPOTENCY_MISMATCH: {
    status: 422,
    message:
      "This Idempotency-Key was used for another request. Send the first one again just as it was, or use a new key.",
  },
  RATE_LIMITED: { status: 429, message: "Too many requests. Wait for the seconds in `retryAfter`, then try again." },
  INTERNAL_ERROR: {
    status: 500,
    message: "Something went wrong on our side. Nothing was lost; try again, and quote the requestId if it stays.",
  },
  IDENTITY_UNAVAILABLE: {
    status: 503,
    message: "The identity provider can't be reached, so the token can't be checked. Try again in a moment.",
  },
  NOT_READY: { status: 503, message: "The service is not ready yet." },
} as const satisfies Record<string, { status: number; message: string }>

export type ErrorCode = keyof typeof errorTable

/**
 * An error whose code, status and message the caller sees; `message` replaces the table's words.
 *
 * @example throw new ApiError("VALIDATION_ERROR", [{ path: "price", message: "must be above 0" }])
 */
export class ApiError extends Error {
  readonly code: ErrorCode
  readonly details: ErrorDetail[] | undefined

  constructor(code: ErrorCode, details?: ErrorDetail[], message?: string, cause?: unknown) {
    super(message ?? errorTable[code].message, { cause })
    this.name = "ApiError"
    this.code = code
    this.details = details
  }
}

/** One fault of the input as a `VALIDATION_ERROR`. */
export const invalid = (path: string, message: string): ApiError =>
  new ApiError("VALIDATION_ERROR", [{ path, message }])
