/**
 * Declares, once, every error with which the API can answer: its code, HTTP status, message, and the `help` text for
 * the documentation.
 *
 * Code that throws an error names the code and, where useful, details. It never names a status.
 */

/**
 * One fault in the input. `path` is dotted (`recipients.0.address`) and empty for the whole body. `message` is a whole
 * sentence, or a clause that starts in lower case (`must be above 0`). The subject of a clause is the field at `path`.
 */
export interface ErrorDetail {
  path: string
  message: string
  /** EIP-712 data that a wallet has to sign. */
  typedData?: object
}

/**
 * The text about an error in the documentation and in answers. If `retryAfterS` is given, every answer with this error
 * has that `Retry-After`, in seconds.
 */
interface ErrorWords {
  status: number
  message: string
  help: string
  retryAfterS?: number
}

/** Enough to correct any request. Without a limit, 256 KB of unknown fields would be answered with 5 MB. */
export const MAX_DETAILS = 100
/**
 * Longer than the path of any known field. The names of unknown fields come from the caller, and may be 256 KB long.
 */
const MAX_PATH = 200
/** Only a caller can have made up a longer name. Such a name is shown in `path`, but not repeated in the sentence. */
const LONGEST_SUBJECT = 100

/** The fault as callers receive it: a whole sentence. If `message` is a clause, its subject is the field. */
function asSentence({ path: whole, message, ...rest }: ErrorDetail): ErrorDetail {
  const path = whole.length > MAX_PATH ? `${whole.slice(0, MAX_PATH)}…` : whole
  const subject = path === "" ? "The body" : path.length > LONGEST_SUBJECT ? "This field" : `\`${path}\``
  const text = /^[a-z]/.test(message) ? `${subject} ${message}` : message
  return { ...rest, path, message: /[.?]$/.test(text) ? text : `${text}.` }
}

export const errorTable = {
  VALIDATION_ERROR: {
    status: 400,
    message: "The request is not valid; `details` lists each fault.",
    help: "Correct the fields listed in `details`; the answer reports all faults together. Nothing was written. A JSON number whose digits would change, such as an order number above 2^53 in `metadata`, is refused: send it as a string in quotes.",
  },
  MERCHANT_REQUIRED: {
    status: 400,
    message:
      "Name the merchant that this request is for. Send the merchant's id in the header `Sluice-Merchant`, or as `?merchant=` on a GET. `details` lists your merchants.",
    help: "You are a member of several merchants or of none, or you are not a member of the merchant that you named. In `details`, each `path` is the id of one of your merchants; `GET /api/console/me` lists them too. If you have none, accept an invitation (`POST /api/console/team/accept`) or create a merchant (`POST /api/console/merchants`).",
  },
  // The names of RFC 8628, which other programs know.
  authorization_pending: {
    status: 400,
    message: "The person has not decided yet. Poll again after `interval` seconds.",
    help: "Poll every `interval` seconds (the answer of `POST /api/device` says how many) until you get a different answer.",
  },
  slow_down: {
    status: 400,
    message: "You polled too early. From now on, wait five seconds longer between polls.",
    help: "Add five seconds to the `interval` for this sign-in, and wait that long before you poll again.",
  },
  access_denied: {
    status: 400,
    message: "The person denied this sign-in, or is no longer allowed to grant this key. No key was created.",
    help: "If that was a mistake, start again with `POST /api/device`. An approval counts only while the person still has the role and the session with which they approved.",
  },
  expired_token: {
    status: 400,
    message:
      "No sign-in is waiting for this device code. The code is older than ten minutes, or its key was already delivered.",
    help: "Start again with `POST /api/device`. If the key was delivered and then lost, revoke it in the console.",
  },
  INVALID_TX_HASH: {
    status: 400,
    message: "`txHash` must be a transaction hash: 0x and 64 hexadecimal digits.",
    help: "Send the hash that the wallet returned when it sent the transfer, not an address or an explorer link.",
  },
  INVALID_SPLIT: {
    status: 400,
    message:
      "The recipients do not form a valid split; `details` says why. Their percentages must add up to exactly 100.",
    help: "A split has 2 to 50 recipients. No address appears twice, each percentage is above 0 and has at most 4 decimals, and no recipient is one of the service's own addresses.",
  },
  UNAUTHORIZED: {
    status: 401,
    message: "This request needs a valid access token: `Authorization: Bearer <token>`.",
    help: "The token is missing, expired, or issued for another service: get a new one from the identity provider. If the message asks for an API key, create one with `POST /api/console/api-keys`. A revoked key stops working immediately.",
  },
  SIGNATURE_REFUSED: {
    status: 401,
    message: "Signature rejected; `details` says why. Ask for a new nonce and sign again.",
    help: "The signed message must name this service, this purpose, a network of this service and an unused nonce, and must be signed by the wallet that it names. Nothing was written.",
  },
  ACCESS_REQUIRED: {
    status: 403,
    message: "The wallet is known, but it currently has no access to this paywall. Pay first.",
    help: "Check the address with `GET /api/paywalls/:id/verify`. The address's access has expired, was revoked or is used up, or another address paid.",
  },
  FORBIDDEN: {
    status: 403,
    message: "This split belongs to another merchant.",
    help: "Use one of your own splits; `GET /api/console/splits` lists them.",
  },
  FOREIGN_REQUEST: {
    status: 403,
    message: "This request does not come from the console's own page, or the browser does not confirm that it does.",
    help: "Signing in and session cookies work only on the console's own pages, in browsers that send `Sec-Fetch-Site`. Programs, and consoles at other origins, use a bearer token or an API key. Nothing was done.",
  },
  SCOPE_REQUIRED: {
    status: 403,
    message: "This API key lacks the scope that this request requires.",
    help: "Create a key with the scope that the message names: `POST /api/console/api-keys` with `scopes`.",
  },
  IP_NOT_ALLOWED: {
    status: 403,
    message: "This API key can't be used from this IP address.",
    help: "The key's `allowedIps` do not include the address that the request came from, as the service determines it (`TRUSTED_PROXIES`). A signed-in person can change the list with `PUT /api/console/api-keys/:id`.",
  },
  ROLE_REQUIRED: {
    status: 403,
    message: "Your role at this merchant does not allow this.",
    help: "The message names the roles that allow it. Ask a member with one of these roles, or ask an owner to change your role. Nothing was written.",
  },
  ERASED: {
    status: 410,
    message: "The data of this event was erased, so the event can't be resent.",
    help: "The customer's personal data was erased (`POST /api/console/erasures`), or `CUSTOMER_DATA_RETENTION` has passed. The event keeps its id, its type and the SHA-256 of the body that was sent.",
  },
  ERASURE_REFUSED: {
    status: 409,
    message: "The customer's data is still needed.",
    help: "The message says what to do, and what still needs the data: money that waits for a decision, an escrow, a refund that is not final, an active subscription, or undelivered events. Nothing was erased.",
  },
  INVITATION_REFUSED: {
    status: 403,
    message: "You can't accept this invitation, or it is no longer valid.",
    help: "The message says why. An invitation names a wallet, or an e-mail address that your identity provider must have verified (`email_verified`). The member who sent the invitation must still be allowed to invite. Nothing was written, and the invitation stays open.",
  },
  WALLET_SIGNATURE_REQUIRED: {
    status: 403,
    message:
      "The payout wallet must sign this change: sign `details[0].typedData` (EIP-712), and send the request again with `Wallet-Signature: <nonce> <signature>`. If `details` has several entries, sign each and separate the signatures with spaces.",
    help: "The merchant's wallet lock is on, or this request switches the lock on or off. The nonce is `details[0].typedData.message.nonce`; it is valid for ten minutes and only for this change. A contract wallet's signature is verified through ERC-1271. To switch the lock on, send the signature of every payout address, in any order. One signature by a key covers its address on all networks. First replace any address that is not yours or can't sign (`PUT /api/console/settings`). Nothing was changed.",
  },
  RETURN_APPROVAL_REQUIRED: {
    status: 409,
    message:
      "Only the approving wallet of this receiving address can send its money back. Sign `details[0].typedData` (EIP-712) with that wallet, and send the request again with `approval: { deadline, signature }`.",
    help: "The deadline is `details[0].typedData.message.deadline`. A contract wallet's signature is verified through ERC-1271. If the wallet can't sign, as with an exchange's address, pay the buyer from your own wallet and accept this payment. To return later payments without a signature, set `approver` to `service` in the settings, which applies to receiving addresses created afterwards. Nothing was changed.",
  },
  DAILY_LIMIT_REACHED: {
    status: 403,
    message: "This request would exceed the 24-hour limit of this API key or of this member.",
    help: "The message says how much is left, and when the limit will allow this request. Three limits apply: the key's own `limits`, the limit of all keys together (`PUT /api/console/settings/key-limits`), and the limit of a member with the support role (`PUT /api/console/team/:id`). Failed and withdrawn decisions don't count. Nothing was created.",
  },
  SANCTIONS_MATCH: {
    status: 403,
    message: "This address is on a sanctions list, so the service refuses it.",
    help: "You can't change this. Every further attempt gets the same answer.",
  },
  SIGNUP_CLOSED: {
    status: 403,
    message:
      "The token is valid, but this service accepts new merchants by invitation only. Ask the operator for an invitation.",
    help: "The operator can invite the token's subject, or open sign-up with `SIGNUP=open`.",
  },
  NOT_FOUND: {
    status: 404,
    message: "Nothing was found here. Check the path, the method and the id.",
    help: "Look up the route in the API document. A request for another merchant's object also gets this answer.",
  },
  PAYWALL_NOT_FOUND: {
    status: 404,
    message: "No paywall has this id.",
    help: "Check the id, including the prefix `pw_`. In the console, a request for another merchant's paywall also gets this answer.",
  },
  DEPOSIT_NOT_FOUND: {
    status: 404,
    message: "This is not a receiving address of this service. If you were asked to pay to this address, don't.",
    help: "An address that does not match its stored terms also gets this answer, and so does an address of an older factory.",
  },
  PAYMENT_NOT_FOUND: {
    status: 404,
    message: "No payment with this hash and address was submitted to this paywall. Submit it first.",
    help: "Submit the hash with `POST /api/paywalls/:id/pay`, or check that this address paid. A return address can be set only while the money waits for the merchant's decision.",
  },
  RECEIPT_NOT_HERE: {
    status: 404,
    message: "This process does not have this file of receipts.",
    help: "A receipt is written to its file a few seconds after its payment (`RECEIPT_BATCH`). If the service runs on several machines, they must all share the folder `DATA_DIR/receipts`.",
  },
  SESSION_NOT_FOUND: {
    status: 404,
    message: "No checkout session has this id.",
    help: "Check the id, including the prefix `cs_`. A request for another merchant's session also gets this answer.",
  },
  LINK_NOT_FOUND: {
    status: 404,
    message: "No payment link has this slug.",
    help: "Check the link's address; slugs are in lower case.",
  },
  ALREADY_VERIFIED: {
    status: 409,
    message: "This transaction has already granted access to this paywall.",
    help: "There is nothing left to do. `GET /api/paywalls/:id/verify` shows the access of the address that paid.",
  },
  PAYOUT_ADDRESS_REQUIRED: {
    status: 409,
    message: "First set the address that receives your money: PUT /api/console/settings { payoutAddress }.",
    help: "For a network other than the default one, set `payoutAddresses`, keyed by the network's name.",
  },
  SESSION_ALREADY_CONFIRMED: {
    status: 409,
    message: "This checkout is already paid and confirmed.",
    help: "There is nothing left to do: `GET /api/pay/status/:id` shows how it was paid.",
  },
  TXHASH_ALREADY_USED: {
    status: 409,
    message: "This transaction paid for something else, and nothing in it went to this checkout.",
    help: "Submit the hash of the transfer that went to this checkout's own address (`payTo`).",
  },
  AUTHORIZATION_ALREADY_USED: {
    status: 409,
    message:
      "The nonce of this authorization was already used or cancelled. Check the payment first. If it is still unpaid, sign a new authorization with a new nonce.",
    help: "An authorization pays only for the checkout that it was signed for. If the authorization moved money on chain, the service finds the transfer automatically, and `GET /api/pay/status/:id` reports it.",
  },
  PAYMENT_ALREADY_SERVED: {
    status: 409,
    message:
      "This payment is settled. It has already been used for another request, or is reserved for requests with its retry token. You are not charged again.",
    help: "The header `PAYMENT-RESPONSE` describes the settlement. A broadcast payment's signature is public, so each payment serves only one request. To get the first answer again, send the payment's `Sluice-Retry-Token`. To get a paywall's content, prove that you own the paying wallet with `POST /api/paywalls/:id/access`.",
  },
  PAYMENT_IDENTIFIER_USED: {
    status: 409,
    message: "This payment identifier belongs to another payment. Use a new identifier for each payment.",
    help: "If you send the identifier with its original payment, you get the first answer again. Nothing was paid.",
  },
  INVALID_OPERATION: {
    status: 409,
    message: "This is not possible in the object's current state.",
    help: "The message names the state that prevents this.",
  },
  SLUG_TAKEN: {
    status: 409,
    message: "This slug is already in use. Choose another.",
    help: "Slugs are unique across the whole installation, including inactive paywalls and bundles. After a merchant gives up a slug, the slug stays reserved for that merchant for 90 days.",
  },
  IDEMPOTENCY_IN_PROGRESS: {
    status: 409,
    message: "The first request with this Idempotency-Key is still running. Try again in a moment with the same key.",
    help: "Wait for the number of seconds in `Retry-After`, then send the same request again. It gets the same answer as the first request.",
  },
  SESSION_EXPIRED: {
    status: 410,
    message: "This checkout has expired, and its 30 days for late payments have passed.",
    help: "Start a new checkout. If you still send money to the old checkout, the money goes to the merchant.",
  },
  LINK_UNAVAILABLE: {
    status: 410,
    message: "This payment link is inactive, expired, or used up. Ask the merchant for another.",
    help: "The merchant can activate the link, extend it, or raise `maxUses`. A link with `payerFields` is never sold to agents: a person can pay at its page.",
  },
  PAYLOAD_TOO_LARGE: {
    status: 413,
    message: "The request body is too large; the limit is 256 KB.",
    help: "Send a smaller body. Host large content yourself, and set `contentUrl` to its address.",
  },
  UNSUPPORTED_MEDIA_TYPE: {
    status: 415,
    message: "Send the body as JSON, with `Content-Type: application/json`.",
    help: "Set the header, or send no body.",
  },
  URL_UNREACHABLE: {
    status: 422,
    message: "The service could not reach the webhook's URL.",
    help: "The message says what went wrong. The endpoint may answer with any status except a redirect, 404, 410, 502, 503 and 504.",
  },
  AUTHORIZATION_REFUSED: {
    status: 422,
    message: "This authorization can't be relayed; `details` says why. Nothing was paid.",
    help: "Sign an authorization that matches what `GET /api/pay/status/:id` asks for, from a wallet that holds the amount. Nothing was written.",
  },
  IDEMPOTENCY_MISMATCH: {
    status: 422,
    message:
      "This Idempotency-Key was used for a different request. Send the first request again unchanged, or use a new key.",
    help: "Create one key for each operation that must happen only once, and store the key with the request body.",
  },
  RATE_LIMITED: {
    status: 429,
    message: "Too many requests. Wait for the number of seconds in `retryAfter`, then try again.",
    help: "In each answer, `X-RateLimit-Remaining` gives the number of requests left, and `X-RateLimit-Reset` the time of the reset. `MAX_DOWNLOADS` limits how many long lists and CSV files an API key, or a merchant's console, reads at the same time. Read one list or file to its end before you request the next. The number of pending payments per wallet is limited too: try again when some have ended.",
    retryAfterS: 1,
  },
  INTERNAL_ERROR: {
    status: 500,
    message:
      "Something went wrong on our side. Nothing was lost. Try again, and quote the requestId if it happens again.",
    help: "The operator can find the cause in the log with the `requestId`.",
  },
  IDENTITY_UNAVAILABLE: {
    status: 503,
    message: "The identity provider can't be reached, so the token can't be checked. Try again in a moment.",
    help: "The token may be valid. The operator should check `OIDC_ISSUER` and the network connection to that issuer.",
  },
  CHAIN_UNAVAILABLE: {
    status: 503,
    message:
      "The network can't be reached, so the signature can't be checked. Try again in a moment, with the same signature.",
    help: "The signature may be valid, and its nonce is still unused. If the message mentions a sanctions list, nothing was changed. The operator should check `RPC_<NETWORK>`.",
  },
  RELAY_UNAVAILABLE: {
    status: 503,
    message: "The service can't relay authorizations at the moment. Send a transfer from your wallet instead.",
    help: "Either the relay wallet on this network is missing, halted or waiting for its signer, or a gas budget is spent. If the wallet is the cause, the operator should set a missing `RELAY_PRIVATE_KEY`, or check the wallet with `sluice wallet show`. The budgets are the relay share of the merchant's daily `GAS_BUDGET`, `GAS_BUDGET_TOTAL` for all merchants, and `RELAY_CONTRACT_BUDGET` for contract wallets.",
  },
  ORIGIN_FAILED: {
    status: 502,
    message: "The API behind this address failed.",
    help: "The message says how it failed. To repeat a paid call without paying again, send the answer's `retryToken` as `Sluice-Retry-Token` within 24 hours. The merchant sees the failure in `GET /api/console/bundles/:id/failures`. These count as failures: redirects, any status from 500 up, and the statuses with which the API refuses the merchant (401, 402, 407, 408, 421, 425, 429).",
  },
  ORIGIN_BUSY: {
    status: 503,
    message:
      "Too many calls are in progress, either to this merchant's APIs or from you. Nothing was paid. Try again in a moment.",
    help: "Each process forwards at most 100 calls to one merchant's APIs at a time, 50 from one caller (an IPv4 address, or the /64 of an IPv6 address), and 500 in total. When all slots are taken, the service ends calls that have no price, to free slots; this call may have been one of them. Wait for the number of seconds in `Retry-After`.",
    retryAfterS: 2,
  },
  PAYMENTS_PAUSED: {
    status: 503,
    message: "Payments on this network are paused. Do not send money now; try again later.",
    help: "The service's payout wallet is halted on this network, so nothing can be bought there. The operator finds the reason with `sluice wallet show`, fixes it, and resumes the wallet. The service still finds and counts money that arrives in the meantime.",
    retryAfterS: 60,
  },
  DATABASE_UNAVAILABLE: {
    status: 503,
    message:
      "The database is unreachable or too slow. Try again after the number of seconds in `Retry-After`, with the same Idempotency-Key.",
    help: "The change was written completely or not at all. If you sent no Idempotency-Key, first check whether the change was made. The operator should check the database and `DATABASE_URL`. The service recovers without a restart.",
    retryAfterS: 5,
  },
  NOT_READY: {
    status: 503,
    message: "The service is not ready.",
    help: "Every path except `/healthz` returns this error while the process starts or stops, or while the clocks of its machine and of its database differ by more than a minute. Nothing was done: send the request again after the number of seconds in `Retry-After`. On `/readyz`, the message gives the reason: the process is starting or stopping, the database does not answer, or the clocks differ. If the clocks differ, the message says which one is wrong, judging by the newest block.",
    retryAfterS: 1,
  },
} as const satisfies Record<string, ErrorWords>

export type ErrorCode = keyof typeof errorTable

/** How many seconds every answer with this error asks its caller to wait; undefined if it asks for no wait. */
export const retryAfterOf = (code: ErrorCode): number | undefined => (errorTable[code] as ErrorWords).retryAfterS

/**
 * An error whose code, status and message the caller sees; `message` replaces the message of the table.
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
    this.details = details?.slice(0, MAX_DETAILS).map(asSentence)
  }
}

/** One fault of the input as a `VALIDATION_ERROR`; for `message`, see {@link ErrorDetail}. */
export const invalid = (path: string, message: string): ApiError =>
  new ApiError("VALIDATION_ERROR", [{ path, message }])
