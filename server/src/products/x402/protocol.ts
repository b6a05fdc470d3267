/**
 * The x402 wire formats of both versions: the terms in a 402, a client's payment, and the answer. Pure. Version 2
 * uses headers, and names networks by CAIP-2. Version 1 has the requirements in the body, and short network names.
 * The facts come from the specification (x402-foundation/x402, `specs/`) and the packages `@x402/core` 2.27.0 and
 * `x402` 1.2.0.
 */
import { createHash } from "node:crypto"
import type { IncomingHttpHeaders } from "node:http"
import type { Hex } from "viem"
import type { Authorization } from "../../platform/chain/authorizations.ts"
import { type Address, checksummed, type Hash, parseAddress, parseHash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import { ApiError, type ErrorDetail, invalid } from "../../platform/errors.ts"
import { isStorable } from "../../platform/http/json.ts"

export type Version = 1 | 2

/** How long a client waits for a settlement, in seconds. Its authorization is valid for the same time. */
const MAX_TIMEOUT_S = 60
/** The only scheme: an EIP-3009 authorization of exactly the price. */
export const SCHEME = "exact"
const MAX_UINT256 = 2n ** 256n - 1n
/** The longest payment header, far longer than a payload with a contract wallet's signature needs. */
const MAX_HEADER = 16_384
/** The networks of Sluice for which version 1 has names. */
const NAMED_IN_V1: ReadonlySet<string> = new Set(["base", "base-sepolia"])
const IDENTIFIER = /^[A-Za-z0-9_-]{16,128}$/

/** A network's name in a version of the protocol. */
export const networkName = ({ name, chainId }: NetworkInfo, version: Version): string =>
  version === 1 ? name : `eip155:${chainId}`

/** A price in a 402. */
export interface Price {
  network: NetworkInfo
  payTo: Address
  /** In base units. */
  amount: bigint
  /** The time until which an old price is accepted; undefined for the current price. */
  pricedUntil?: Date | undefined
}

/** What a payment buys, in the form that clients show. */
export interface Sold {
  /** An absolute URL. */
  url: string
  description: string
  mimeType: string
}

const domainOf = ({ token: { name, version } }: NetworkInfo) => ({ name, version })

/** The requirements of version 2. They are equal for equal prices, because clients echo and deeply compare them. */
export const requirementsV2 = ({ network, payTo, amount }: Price) => ({
  scheme: SCHEME,
  network: networkName(network, 2),
  amount: `${amount}`,
  asset: checksummed(network.token.address),
  payTo: checksummed(payTo),
  maxTimeoutSeconds: MAX_TIMEOUT_S,
  extra: domainOf(network),
})

/** The requirements of version 1. */
const requirementsV1 = ({ network, payTo, amount }: Price, { url, description, mimeType }: Sold) => ({
  scheme: SCHEME,
  network: networkName(network, 1),
  maxAmountRequired: `${amount}`,
  resource: url,
  description,
  mimeType,
  payTo: checksummed(payTo),
  maxTimeoutSeconds: MAX_TIMEOUT_S,
  asset: checksummed(network.token.address),
  extra: domainOf(network),
})

/** The 402 of both versions. Clients of version 2 read the header, and clients of version 1 read the body. */
export function paymentRequired(
  price: Price,
  sold: Sold,
  error: string,
  extensions: Record<string, unknown>,
): { header: string; body: object } {
  const { url, description, mimeType } = sold
  const v2 = {
    x402Version: 2,
    error,
    resource: { url, description, mimeType },
    accepts: [requirementsV2(price)],
    extensions,
  }
  // A version 1 client refuses the whole answer if it does not know the network of one entry.
  const accepts = NAMED_IN_V1.has(price.network.name) ? [requirementsV1(price, sold)] : []
  return { header: encode(v2), body: { x402Version: 1, error, accepts } }
}

/** Encodes JSON for a header: standard base64 of UTF-8. */
const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64")

/** A client's payment. */
export interface Payment {
  version: Version
  scheme: string
  /** The network's name in the client's version of the protocol. */
  network: string
  /** The terms that the client says it accepted; version 1 has none. */
  accepted: { amount: string; asset: string; payTo: string } | undefined
  authorization: Authorization
  signature: Hex
  /** The id that the client gave the payment. */
  identifier: string | undefined
  /** The SHA-256, in hex, of the authorization and its signature, so that equal payments have equal hashes. */
  hash: string
}

/**
 * Reads the payment of a request; undefined if there is none. Throws `VALIDATION_ERROR` if a header can't be decoded
 * or the payload is incomplete.
 */
export function readPayment(headers: IncomingHttpHeaders): Payment | undefined {
  for (const name of ["payment-signature", "x-payment"] as const) {
    const value = headers[name]
    if (value !== undefined) return parsePayment(decode(name.toUpperCase(), `${value}`), name.toUpperCase())
  }
  return undefined
}

function decode(name: string, value: string): unknown {
  if (value.length > MAX_HEADER) throw invalid(name, `must have at most ${MAX_HEADER} characters`)
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(value)) throw invalid(name, "must be standard base64")
  try {
    return JSON.parse(Buffer.from(value, "base64").toString("utf8"))
  } catch {
    throw invalid(name, "must be base64 of JSON")
  }
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Parses a payload of either version, which was found at the path `at`. Throws `VALIDATION_ERROR` with every fault. */
export function parsePayment(json: unknown, at: string): Payment {
  const faults: ErrorDetail[] = []
  const fault = (path: string, message: string) => void faults.push({ path: `${at}.${path}`, message })
  const root = isObject(json) ? json : {}
  const version = root.x402Version
  if (version !== 1 && version !== 2) fault("x402Version", "must be 1 or 2")
  const accepted = isObject(root.accepted) ? root.accepted : undefined
  if (version === 2 && !accepted) fault("accepted", "must be the paid entry of `accepts`")
  const terms = version === 2 ? (accepted ?? {}) : root
  const payload = isObject(root.payload) ? root.payload : {}
  const written = isObject(payload.authorization) ? payload.authorization : {}
  const text = (holder: Record<string, unknown>, name: string, path: string): string => {
    const value = holder[name]
    if (typeof value === "string" && value.length <= 200 && isStorable(value)) return value
    fault(path, "must be text")
    return ""
  }
  const address = (name: "from" | "to"): Address => {
    const value = written[name]
    const parsed = typeof value === "string" ? parseAddress(value) : undefined
    if (!parsed) fault(`payload.authorization.${name}`, "must be an address with a valid checksum")
    return parsed ?? ("0x" as Address)
  }
  const uint = (name: "value" | "validAfter" | "validBefore"): bigint => {
    const value = written[name]
    if (typeof value === "string" && /^[0-9]{1,78}$/.test(value) && BigInt(value) <= MAX_UINT256) return BigInt(value)
    fault(`payload.authorization.${name}`, "must be text of decimal digits, at most 2^256 - 1")
    return 0n
  }
  const nonce = parseHash(written.nonce)
  if (!nonce) fault("payload.authorization.nonce", "must be 0x and 64 hexadecimal digits")
  const signature = payload.signature
  const isHex = typeof signature === "string" && /^0x([0-9a-fA-F]{2}){0,4096}$/.test(signature)
  if (!isHex) fault("payload.signature", "must be 0x and up to 4,096 bytes in hexadecimal digits")
  const payment: Payment = {
    version: version === 1 ? 1 : 2,
    scheme: text(terms, "scheme", version === 2 ? "accepted.scheme" : "scheme"),
    network: text(terms, "network", version === 2 ? "accepted.network" : "network"),
    accepted: accepted && {
      amount: text(accepted, "amount", "accepted.amount"),
      asset: text(accepted, "asset", "accepted.asset"),
      payTo: text(accepted, "payTo", "accepted.payTo"),
    },
    authorization: {
      from: address("from"),
      to: address("to"),
      value: uint("value"),
      validAfter: uint("validAfter"),
      validBefore: uint("validBefore"),
      nonce: nonce ?? ("0x" as Hash),
    },
    signature: (isHex ? signature.toLowerCase() : "0x") as Hex,
    identifier: identifierOf(root.extensions, fault),
    hash: "",
  }
  if (faults.length > 0) throw new ApiError("VALIDATION_ERROR", faults)
  return { ...payment, hash: hashOf(payment) }
}

/** The id in the extension `payment-identifier`; undefined if there is none. */
function identifierOf(extensions: unknown, fault: (path: string, message: string) => void): string | undefined {
  const extension = isObject(extensions) ? extensions["payment-identifier"] : undefined
  const info = isObject(extension) && isObject(extension.info) ? extension.info : undefined
  const id = info?.id
  if (id === undefined) return undefined
  if (typeof id === "string" && IDENTIFIER.test(id)) return id
  fault("extensions.payment-identifier.info.id", "must be 16 to 128 letters, digits, hyphens and underscores")
  return undefined
}

function hashOf({ authorization, signature, network, scheme }: Payment): string {
  const parts = [...Object.values(authorization).map(String), signature, network, scheme]
  return createHash("sha256").update(JSON.stringify(parts)).digest("hex")
}

/** How a settlement ended, in the form that the answers of both versions use. */
export interface SettleAnswer {
  success: boolean
  errorReason?: string
  payer: string
  transaction: string
  network: string
  extensions?: Record<string, unknown>
}

/** The headers that tell a client how its payment ended. */
export const responseHeaders = (version: Version, answer: SettleAnswer): Record<string, string> => ({
  [version === 1 ? "x-payment-response" : "payment-response"]: encode(answer),
})
