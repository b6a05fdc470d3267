/** The wire format of x402, in both versions: the terms in a 402, and a buyer's payment. */

/** The terms that a buyer is offered, in version 2. */
export interface Terms {
  scheme: "exact"
  network: string
  /** Base units. */
  amount: string
  asset: string
  payTo: string
  maxTimeoutSeconds: number
  extra: { name: string; version: string }
}

/** The item for sale, as clients show it. */
export interface Sold {
  url: string
  description: string
  mimeType: string
}

/** A buyer's payment, as it was sent. */
export interface Payment {
  version: 1 | 2
  /** The whole payload. */
  payload: Record<string, unknown>
  from: string
  nonce: string
}

/** Version 1 has names only for these networks, and its clients refuse a 402 with an unknown name. */
const namesV1: Record<string, string> = { "eip155:8453": "base", "eip155:84532": "base-sepolia" }

const MAX_HEADER = 16_384

/** Standard base64 of JSON in UTF-8. */
export const encode = (value: unknown): string =>
  btoa(Array.from(new TextEncoder().encode(JSON.stringify(value)), byte => String.fromCharCode(byte)).join(""))

/** Decodes the result of `encode`; undefined for anything else. */
export function decode(text: string): unknown {
  try {
    if (text.length > MAX_HEADER || !/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return undefined
    return JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(text), char => char.charCodeAt(0))))
  } catch {
    return undefined
  }
}

/** The terms in the format of a payment's version; undefined if version 1 has no name for the network. */
export function termsFor(version: 1 | 2, terms: Terms, sold: Sold): object | undefined {
  if (version === 2) return terms
  const { amount, network, ...shared } = terms
  const name = namesV1[network]
  const { url: resource, ...described } = sold
  if (name === undefined) return undefined
  return { ...shared, ...described, resource, network: name, maxAmountRequired: amount }
}

/** Tells a client that it may name its payment, so that it can get a lost answer again. */
const named = {
  info: { required: false },
  schema: {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    properties: {
      required: { type: "boolean" },
      id: { type: "string", minLength: 16, maxLength: 128, pattern: "^[a-zA-Z0-9_-]+$" },
    },
    required: ["required"],
  },
}

/** A 402 for both versions: clients of version 2 read the header, those of version 1 the body. */
export function paymentRequired(terms: Terms, sold: Sold, error: string, message: string) {
  const v2 = { x402Version: 2, error, resource: sold, accepts: [terms], extensions: { "payment-identifier": named } }
  const v1 = termsFor(1, terms, sold)
  return {
    header: encode(v2),
    body: { x402Version: 1, error, message, accepts: v1 ? [v1] : [] },
  }
}

/** The payment in a request; undefined without one, and "unreadable" for anything else. */
export function readPayment(header: (name: string) => string | undefined): Payment | "unreadable" | undefined {
  const text = header("payment-signature") ?? header("x-payment")
  return text === undefined ? undefined : parsePayment(decode(text))
}

/** A payment from its payload; "unreadable" for anything else. The service checks all of it. */
export function parsePayment(json: unknown): Payment | "unreadable" {
  const payload = json as { x402Version?: unknown; payload?: { authorization?: Record<string, unknown> } } | undefined
  const { from, nonce } = payload?.payload?.authorization ?? {}
  const version = payload?.x402Version
  if ((version !== 1 && version !== 2) || typeof from !== "string" || typeof nonce !== "string") return "unreadable"
  return { version, payload: payload as Record<string, unknown>, from, nonce }
}

/** The header that tells a client the result of its payment. */
export const responseHeader = (version: 1 | 2, settled: unknown): Record<string, string> => ({
  [version === 1 ? "x-payment-response" : "payment-response"]: encode(settled),
})
