/**
 * Every error a caller can meet, declared once: its code, its HTTP status, its words, and `help` for the documents.
 *
 * A throw site names the code and, where it helps, the details; it never names a status.
 */

/**
 * A fault at one place of the input; `path` is dotted (`recipients.0.address`), empty for the whole body. `message` is either
 * a whole sentence, or a clause with a small first letter (`must be above 0`), whose subject is the field at `path`.
 */
export interface ErrorDetail {
  path: string
  message: string
  /** EIP-712 data that a wallet has to sign. */
  typedData?: object
}

/** What is said of an error; with `retryAfterS` each answer has that many seconds as `Retry-After`. */
interface ErrorWords {
  status: number
  message: string
  help: string
  retryAfterS?: number
}

/** A longer name is the caller's invention: it stands in `path` once, and not in the sentence again. */
const LONGEST_SUBJECT = 100

/** The fault as callers get it: a whole sentence, whose subject is the field where the message was a clause. */
function asSentence({ path, message, ...rest }: ErrorDetail): ErrorDetail {
  const subject = path === "" ? "The body" : path.length > LONGEST_SUBJECT ? "This field" : `\`${path}\``
  const text = /^[a-z]/.test(message) ? `${subject} ${message}` : message
  return { ...rest, path, message: /[.?]$/.test(text) ? text : `${text}.` }
}

export const errorTable = {
  VALIDATION_ERROR: {
    status: 400,
    message: "The request is not valid; `details` names each fault.",
    help: "Mend the fields that `details` names; all faults are told at once. Nothing was written.",
  },
  INVALID_TX_HASH: {
    status: 400,
    message: "`txHash` must be a transaction hash: 0x and 64 hexadecimal digits.",
    help: "Send the hash that the wallet answered when it sent the transfer, not an address and not an explorer's link.",
  },
  INVALID_SPLIT: {
    status: 400,
    message: "The recipients make no split; `details` says why. Their percentages must be exactly 100 together.",
    help: "2 to 50 recipients, no address twice, each above 0 with at most 4 decimals, none of the service's own addresses.",
  },
  UNAUTHORIZED: {
    status: 401,
    message: "A valid access token is needed: `Authorization: Bearer <token>`.",
    help: "Get a new token from the identity provider: this one is missing, expired, or made for another service. Where the message asks for an API key, make one with `POST /api/console/api-keys`; a revoked one is gone at once.",
  },
  SIGNATURE_REFUSED: {
    status: 401,
    message: "This signature opens nothing here; `details` says why. Ask for a new nonce and sign again.",
    help: "The message must name this service, this purpose, a network of this service and a nonce that was not used, and be signed by the wallet that it names. Nothing was written.",
  },
  ACCESS_REQUIRED: {
    status: 403,
    message: "The wallet is known, but it holds no access to this paywall now. Pay first.",
    help: "Ask `GET /api/paywalls/:id/verify` for the address: its access has ended, was revoked or used up, or another address paid.",
  },
  FORBIDDEN: {
    status: 403,
    message: "This split belongs to another merchant.",
    help: "Use a split of your own; `GET /api/console/splits` lists them.",
  },
  WALLET_SIGNATURE_REQUIRED: {
    status: 403,
    message:
      "The payout wallet must sign this change: sign `details[0].typedData` (EIP-712), and send the request again with `Wallet-Signature: <nonce> <signature>`.",
    help: "The merchant's wallet lock is on, or is being switched. The nonce is `details[0].typedData.message.nonce`, good for ten minutes and for this change alone. A contract wallet signs by ERC-1271. Nothing was changed.",
  },
  SANCTIONS_MATCH: {
    status: 403,
    message: "This address is on a sanctions list and can't be served.",
    help: "Nothing can be done here. Another attempt gets the same answer.",
  },
  SIGNUP_CLOSED: {
    status: 403,
    message: "The token is valid, but this installation takes new merchants by invitation only. Ask its operator.",
    help: "The operator can invite the token's subject, or open the sign-up with `SIGNUP=open`.",
  },
  NOT_FOUND: {
    status: 404,
    message: "There is nothing at this address. Check the path, the method and the id.",
    help: "Look the route up in the API's document. What belongs to another merchant is not found either.",
  },
  PAYWALL_NOT_FOUND: {
    status: 404,
    message: "No paywall has this id.",
    help: "Check the id, `pw_` included. In the console a paywall of another merchant is not found either.",
  },
  PAYMENT_NOT_FOUND: {
    status: 404,
    message: "No payment with this hash and address was submitted to this paywall. Submit it first.",
    help: "Submit it with `POST /api/paywalls/:id/pay`, or check that the address is the one that paid. For a return address: only money that waits has one.",
  },
  SESSION_NOT_FOUND: {
    status: 404,
    message: "No checkout session has this id.",
    help: "Check the id, `cs_` included. A session of another merchant is not found either.",
  },
  LINK_NOT_FOUND: {
    status: 404,
    message: "No payment link has this slug.",
    help: "Check the link's address; slugs are lower-case.",
  },
  ALREADY_VERIFIED: {
    status: 409,
    message: "This transaction has already granted access to this paywall.",
    help: "There is nothing left to do: ask `GET /api/paywalls/:id/verify` for the address that paid.",
  },
  PAYOUT_ADDRESS_REQUIRED: {
    status: 409,
    message: "Set the address your money goes to first: PUT /api/console/settings { payoutAddress }.",
    help: "For another network than the default one: `payoutAddresses`, by the network's name.",
  },
  SESSION_ALREADY_CONFIRMED: {
    status: 409,
    message: "This checkout is paid and confirmed.",
    help: "There is nothing left to do: `GET /api/pay/status/:id` tells how it was paid.",
  },
  TXHASH_ALREADY_USED: {
    status: 409,
    message: "This transaction paid for something else, and nothing in it went to this checkout.",
    help: "Submit the hash of the transfer that went to this checkout's own address (`payTo`).",
  },
  AUTHORIZATION_ALREADY_USED: {
    status: 409,
    message:
      "The nonce of this authorization was used before, or taken back. Sign a new authorization with a fresh nonce.",
    help: "An authorization pays for the one checkout that it was made for. If it moved money on chain, `GET /api/pay/status/:id` finds that by itself.",
  },
  INVALID_OPERATION: {
    status: 409,
    message: "This can't be done in its present state.",
    help: "The message names the state that is in the way.",
  },
  SLUG_TAKEN: {
    status: 409,
    message: "This slug is already in use. Choose another.",
    help: "Slugs are unique in the whole installation, switched-off paywalls included.",
  },
  IDEMPOTENCY_IN_PROGRESS: {
    status: 409,
    message: "The first request with this Idempotency-Key is still running. Try again in a moment, with the same key.",
    help: "Wait for the seconds in `Retry-After`, then send the same request: it gets the first one's answer.",
  },
  SESSION_EXPIRED: {
    status: 410,
    message: "The time of this checkout is over, and so are the 30 days in which late payments are looked for.",
    help: "Start a new checkout. Money that was sent all the same goes to the merchant.",
  },
  LINK_UNAVAILABLE: {
    status: 410,
    message: "This payment link is switched off, expired, or used up. Ask the merchant for another.",
    help: "The merchant can switch it on, give it more time, or raise `maxUses`.",
  },
  PAYLOAD_TOO_LARGE: {
    status: 413,
    message: "The request body is too large; 256 KB is the most.",
    help: "Send less; large content belongs at a `contentUrl`.",
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: 415,
    message: "Send the body as JSON, with `Content-Type: application/json`.",
    help: "Set the header, or send no body.",
  },
  URL_UNREACHABLE: {
    status: 422,
    message: "The webhook's URL could not be reached.",
    help: "The message names what went wrong. Any answer will do but a redirect, 404, 410, 502, 503 and 504.",
  },
  AUTHORIZATION_REFUSED: {
    status: 422,
    message: "This authorization can't be carried out; `details` says why. Nothing was paid.",
    help: "Sign one that fits what `GET /api/pay/status/:id` asks for, from a wallet that holds the amount. Nothing was written.",
  },
  IDEMPOTENCY_MISMATCH: {
    status: 422,
    message:
      "This Idempotency-Key was used for another request. Send the first one again just as it was, or use a new key.",
    help: "Make a key for each thing that is to happen once, and keep it with the body that it was sent with.",
  },
  RATE_LIMITED: {
    status: 429,
    message: "Too many requests. Wait for the seconds in `retryAfter`, then try again.",
    help: "`X-RateLimit-Remaining` and `X-RateLimit-Reset` on each answer tell how much is left, and until when. Long lists and CSV files of one merchant are also bounded by how many are on their way at once (`MAX_DOWNLOADS`): read one to its end before asking for another.",
    retryAfterS: 1,
  },
  INTERNAL_ERROR: {
    status: 500,
    message: "Something went wrong on our side. Nothing was lost; try again, and quote the requestId if it stays.",
    help: "The operator finds the cause in the log, by the `requestId`.",
  },
  IDENTITY_UNAVAILABLE: {
    status: 503,
    message: "The identity provider can't be reached, so the token can't be checked. Try again in a moment.",
    help: "The token may be good. The operator checks `OIDC_ISSUER` and the way to it.",
  },
  CHAIN_UNAVAILABLE: {
    status: 503,
    message:
      "The network can't be reached, so the signature can't be checked. Try again in a moment, with the same signature.",
    help: "The signature may be good, and its nonce is not used up; where the message speaks of a sanctions list, nothing was decided. The operator checks `RPC_<NETWORK>`.",
  },
  RELAY_UNAVAILABLE: {
    status: 503,
    message: "Authorizations can't be carried out here at the moment. Pay with a transfer of your own.",
    help: "The service has no relay wallet on this network, or it is halted: the operator sets `RELAY_PRIVATE_KEY`, and looks at the wallet. Or relays took their part of the merchant's `GAS_BUDGET` of the day, all merchants spent `GAS_BUDGET_TOTAL`, or contract wallets `RELAY_CONTRACT_BUDGET`.",
  },
  PAYMENTS_PAUSED: {
    status: 503,
    message: "Payments on this network are paused. Send no money now, and try again later.",
    help: "The service's payout wallet is halted on the network, so nothing is sold there. The operator sees the reason with `script/wallet show`, mends it, and resumes the wallet. Money that arrives meanwhile is found and counted.",
    retryAfterS: 60,
  },
  DATABASE_UNAVAILABLE: {
    status: 503,
    message:
      "The database can't be reached or takes too long. Try again after the seconds in `Retry-After`, with the same Idempotency-Key.",
    help: "Nothing was written, or all of it: without an Idempotency-Key look first whether the change was made. The operator checks the database and `DATABASE_URL`; the service recovers by itself.",
    retryAfterS: 5,
  },
  NOT_READY: {
    status: 503,
    message: "The service is not ready yet.",
    help: "The message names what is missing: the database, or a network that was not looked at lately.",
  },
} as const satisfies Record<string, ErrorWords>

export type ErrorCode = keyof typeof errorTable

/** The seconds that every answer with this error asks its caller to wait; undefined where it says nothing. */
export const retryAfterOf = (code: ErrorCode): number | undefined => (errorTable[code] as ErrorWords).retryAfterS

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
    this.details = details?.map(asSentence)
  }
}

/** One fault of the input as a `VALIDATION_ERROR`; `message` as in {@link ErrorDetail}. */
export const invalid = (path: string, message: string): ApiError =>
  new ApiError("VALIDATION_ERROR", [{ path, message }])
