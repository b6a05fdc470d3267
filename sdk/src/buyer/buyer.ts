/**
 * Pays checkouts, payment links, paywalls and every other URL that answers 402, by a signature from any viem account or
 * wallet (EIP-1193). A purchase keeps one nonce until it is delivered, and the token executes a nonce only once. So a
 * payment whose answer was lost is found, and never made twice.
 */

import { decode, encode, type Terms } from "../middleware/wire.ts"
import { toUnits } from "../money.ts"
import { placeOf } from "./place.ts"
import { type Authorization, type Payer, signerOf, type Wallet } from "./sign.ts"

/** Stores unfinished purchases, by name, as text. A file or a database lets a program continue after it died. */
export interface BuyerStore {
  get(name: string): Promise<string | undefined> | string | undefined
  set(name: string, value: string): Promise<unknown> | unknown
  delete(name: string): Promise<unknown> | unknown
}

/** A token that may be spent, and its number of decimals. */
export interface SpendableToken {
  /** CAIP-2, such as `eip155:8453`. */
  network: string
  address: string
  decimals: number
}

export interface BuyerOptions {
  /** A viem account, or a wallet that answers `eth_signTypedData_v4` (EIP-1193) with the address that pays. */
  wallet: Wallet
  /** The most that one purchase may cost, in whole tokens: "1.00". */
  maxPerPayment: string
  /** The most to sign for in a day (UTC), in whole tokens. A program that keeps its own cap binds only itself. */
  maxPerDay?: string
  /** USDC of Base and Base Sepolia by default. */
  tokens?: readonly SpendableToken[]
  /** This process's memory by default. */
  store?: BuyerStore
  fetch?: typeof fetch
  /** Milliseconds to wait for a payment to complete; 120,000 by default. */
  timeoutMs?: number
}

/** Why nothing was bought. After `PENDING` and `ALREADY_PAID`, buy the same thing again: it is never paid twice. */
export class BuyerError extends Error {
  override readonly name = "BuyerError"
  readonly code: "OVER_CAP" | "UNKNOWN_TOKEN" | "REFUSED" | "PENDING" | "ALREADY_PAID" | "NOT_PAYABLE"

  constructor(code: BuyerError["code"], message: string) {
    super(message)
    this.code = code
  }
}

const usdc: readonly SpendableToken[] = [
  { network: "eip155:8453", address: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913", decimals: 6 },
  { network: "eip155:84532", address: "0x036CbD53842c5426634e7929541eC2318f3dCF7e", decimals: 6 },
]
const TIMEOUT_MS = 120_000
const PAUSE_MS = 1_000
const RETRY_TOKEN = "sluice-retry-token"
/** Answers that mean that the money of this nonce has already moved. */
const USED = /nonce_already_used|duplicate_settlement|settlement_pending/

/** The stored state of one purchase. */
interface Kept {
  nonce: `0x${string}`
  /** Sent to the seller, who repeats its answer to it. It is not the nonce, which everyone can read on chain. */
  id?: string
  /** The header of the last signed payment. */
  header?: string
  token?: string
}

interface Buyer {
  payer: Payer
  options: BuyerOptions
  store: BuyerStore
  fetch: typeof fetch
}

/**
 * Makes a buyer. `fetch` works like the runtime's, and pays a URL that answers 402. `pay` takes the address of a
 * checkout, payment link or paywall (the page's, or the API's). Both throw a {@link BuyerError}.
 *
 * @example const buyer = openBuyer({ wallet: privateKeyToAccount(key), maxPerPayment: "1.00" })
 */
export function openBuyer(options: BuyerOptions) {
  toUnits(options.maxPerPayment, 18)
  const buyer: Buyer = {
    payer: signerOf(options.wallet),
    options,
    store: options.store ?? memory(),
    fetch: options.fetch ?? ((input, init) => fetch(input, init)),
  }
  const oneByOne = lanes()
  return {
    fetch: async (input: string | URL, init: RequestInit = {}): Promise<Response> => {
      const name = await nameOf(`${input}`, init)
      return await oneByOne(name, () => buy(buyer, name, `${input}`, init))
    },
    pay: async (address: string | URL): Promise<Record<string, unknown>> => {
      const place = placeOf(address)
      if (!place) throw new BuyerError("NOT_PAYABLE", `${address} is no checkout, payment link or paywall.`)
      if ("checkout" in place)
        return await oneByOne(place.checkout, () => payCheckout(buyer, place.origin, place.checkout))
      const { url, init } = place
      const name = await nameOf(url, init)
      const response = await oneByOne(name, () => buy(buyer, name, url, init, true))
      if (!response.ok)
        throw new BuyerError("REFUSED", `${url} answered HTTP ${response.status}: ${await response.text()}`)
      return (await response.json()) as Record<string, unknown>
    },
  }
}

/** Asks, pays the requested amount, and asks again until the purchase is delivered or time is up. */
async function buy(buyer: Buyer, name: string, url: string, init: RequestInit, isService = false): Promise<Response> {
  // The caller decides about a shop's own failure; the service itself is asked again.
  const again = isService ? [202, 409, 429, 500, 502, 503, 504] : [202, 409, 429, 503]
  const endsAt = Date.now() + (buyer.options.timeoutMs ?? TIMEOUT_MS)
  let kept = await read(buyer, name)
  let signed = 0
  for (let answer = await ask(buyer, url, init, kept); ; answer = await ask(buyer, url, init, kept)) {
    const status = answer?.status
    if (answer && status === 402) {
      if (kept && (await isUsed(answer))) throw paid(url)
      if (kept?.header && signed++ > 0) throw await refused(answer)
      kept = await sign(buyer, name, answer, kept)
    } else if (answer && status !== undefined && !(kept && again.includes(status))) {
      // The seller's own failure is not a delivery. Its token, if it gave one, repeats the call.
      const token = answer.headers.get(RETRY_TOKEN)
      if (!kept || answer.ok) await buyer.store.delete(name)
      else if (token) await keep(buyer, name, { ...kept, token })
      return answer
    } else {
      const token = answer?.headers.get(RETRY_TOKEN)
      if (token && kept) kept = await keep(buyer, name, { ...kept, token })
      if (Date.now() > endsAt) throw pending(url)
      await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
    }
  }
}

/** Undefined if no complete answer came. */
async function ask(
  buyer: Buyer,
  url: string,
  init: RequestInit,
  kept: Kept | undefined,
): Promise<Response | undefined> {
  const headers = new Headers(init.headers)
  if (kept?.token) headers.set(RETRY_TOKEN, kept.token)
  else if (kept?.header) headers.set("payment-signature", kept.header)
  try {
    const response = await buyer.fetch(url, { ...init, headers })
    // Read completely here, so that an answer that breaks off is requested again.
    const { status, statusText } = response
    const body = await response.arrayBuffer()
    return new Response(status === 204 || status === 304 ? null : body, {
      status,
      statusText,
      headers: response.headers,
    })
  } catch (error) {
    init.signal?.throwIfAborted()
    // Nothing was signed yet.
    if (!kept) throw error
    return undefined
  }
}

async function isUsed(answer: Response): Promise<boolean> {
  const required = decode(answer.headers.get("payment-required") ?? "") as { error?: string } | undefined
  return USED.test(`${required?.error}`) || USED.test(await answer.clone().text())
}

/** Signs the payment that a 402 asks for, with this purchase's nonce, and stores it before it is sent. */
async function sign(buyer: Buyer, name: string, answer: Response, kept: Kept | undefined): Promise<Kept> {
  const required = decode(answer.headers.get("payment-required") ?? "") as
    | { accepts?: Terms[]; resource?: unknown; extensions?: Record<string, unknown> }
    | undefined
  const terms = required?.accepts?.find(each => each.scheme === "exact" && tokenOf(buyer, each.network, each.asset))
  if (!terms) throw new BuyerError("UNKNOWN_TOKEN", "What is asked for is in no token that this buyer may spend.")
  await assertWithin(buyer, terms, kept === undefined)
  const nonce = kept?.nonce ?? newNonce()
  const nowS = Math.floor(Date.now() / 1_000)
  const authorization: Authorization = {
    from: buyer.payer.address,
    to: terms.payTo as `0x${string}`,
    value: terms.amount,
    validAfter: `${nowS - 600}`,
    validBefore: `${nowS + Math.max(10, Number(terms.maxTimeoutSeconds) || 60)}`,
    nonce,
  }
  const signature = await buyer.payer.sign(authorization, {
    name: terms.extra.name,
    version: terms.extra.version,
    chainId: Number(terms.network.split(":")[1]),
    verifyingContract: terms.asset as `0x${string}`,
  })
  const id = kept?.id ?? crypto.randomUUID()
  const info = { required: false, id }
  const header = encode({
    x402Version: 2,
    resource: required?.resource,
    accepted: terms,
    payload: { signature, authorization },
    extensions: { ...required?.extensions, "payment-identifier": { info } },
  })
  return await keep(buyer, name, { nonce, id, header })
}

interface PayStatus {
  status: string
  message: string
  amount: string
  amountReceived: string
  capture: string
  chainId: number
  token: { address: `0x${string}`; decimals: number }
  payTo?: `0x${string}` | null
  expiresAt: string
}

/** Pays a checkout by a signature, and waits until it is confirmed. */
async function payCheckout(buyer: Buyer, origin: string, id: string): Promise<Record<string, unknown>> {
  const endsAt = Date.now() + (buyer.options.timeoutMs ?? TIMEOUT_MS)
  const name = `${origin} ${id}`
  for (let hasSent = false; Date.now() < endsAt; ) {
    const now = await status(buyer, origin, id, hasSent)
    if (now && ["confirmed", "authorized"].includes(now.status)) {
      await buyer.store.delete(name)
      return { ...now }
    }
    if (now?.status === "pending" && !hasSent) hasSent = await authorize(buyer, { origin, id, name }, now)
    else if (now && !["pending", "verifying"].includes(now.status))
      throw new BuyerError("NOT_PAYABLE", `The checkout is ${now.status}: ${now.message}`)
    else if (now && !hasSent && !(await read(buyer, name)))
      throw new BuyerError("NOT_PAYABLE", `Somebody else is paying the checkout: ${now.message}`)
    else {
      hasSent = hasSent || now !== undefined
      await new Promise(resolve => setTimeout(resolve, PAUSE_MS))
    }
  }
  throw pending(`${origin}/pay/${id}`)
}

async function status(buyer: Buyer, origin: string, id: string, mayWait: boolean): Promise<PayStatus | undefined> {
  const url = `${origin}/api/pay/status/${id}${mayWait ? "?wait=10" : ""}`
  const response = await buyer.fetch(url).catch(() => undefined)
  if (response?.status === 404) throw new BuyerError("NOT_PAYABLE", `There is no checkout ${id} at ${origin}.`)
  return response?.ok ? ((await response.json()) as PayStatus) : undefined
}

/** Signs for the missing amount, and sends it; returns whether it was sent. */
async function authorize(
  buyer: Buyer,
  { origin, id, name }: { origin: string; id: string; name: string },
  { payTo, capture, token, chainId, amount, amountReceived, expiresAt }: PayStatus,
): Promise<boolean> {
  if (capture !== "direct" || !payTo)
    throw new BuyerError(
      "NOT_PAYABLE",
      "This checkout is paid on its page: its money is reserved, or it takes none now.",
    )
  const network = `eip155:${chainId}`
  const value = toUnits(amount, token.decimals) - toUnits(amountReceived, token.decimals)
  const kept = await read(buyer, name)
  if (!tokenOf(buyer, network, token.address))
    throw new BuyerError("UNKNOWN_TOKEN", "The checkout is in no token that this buyer may spend.")
  await assertWithin(buyer, { network, asset: token.address, amount: `${value}` }, kept === undefined)
  const { nonce } = kept ?? (await keep(buyer, name, { nonce: newNonce() }))
  const authorization: Authorization = {
    from: buyer.payer.address,
    to: payTo,
    value: `${value}`,
    validAfter: "0",
    validBefore: `${Math.floor(Date.parse(expiresAt) / 1_000)}`,
    nonce,
  }
  const domain = await domainOf(buyer, origin, network)
  if (!domain) return false
  const signature = await buyer.payer.sign(authorization, { ...domain, chainId, verifyingContract: token.address })
  const response = await buyer
    .fetch(`${origin}/api/pay/authorize`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ sessionId: id, authorization, signature }),
    })
    .catch(() => undefined)
  if (!response || response.status >= 500 || response.status === 429) return false
  if (response.ok) return true
  const { error, message } = (await response.json()) as { error: string; message: string }
  if (error === "AUTHORIZATION_ALREADY_USED" || error === "SESSION_ALREADY_CONFIRMED") return true
  throw new BuyerError("REFUSED", `${error}: ${message}`)
}

/** The EIP-712 domain of the token that the service settles on a network; undefined if the service does not answer. */
async function domainOf(buyer: Buyer, origin: string, network: string) {
  const response = await buyer.fetch(`${origin}/x402/supported`).catch(() => undefined)
  if (!response?.ok) return undefined
  const { kinds } = (await response.json()) as {
    kinds: { network: string; extra: { name: string; version: string } }[]
  }
  const { name, version } = kinds.find(kind => kind.network === network)?.extra ?? {}
  return name === undefined || version === undefined ? undefined : { name, version }
}

const tokenOf = ({ options }: Buyer, network: string, address: string): SpendableToken | undefined =>
  (options.tokens ?? usdc).find(
    token => token.network === network && token.address.toLowerCase() === `${address}`.toLowerCase(),
  )

/** Throws `OVER_CAP`. A new purchase counts against the daily cap. */
async function assertWithin(
  buyer: Buyer,
  { network, asset, amount }: Pick<Terms, "network" | "asset" | "amount">,
  isNew: boolean,
): Promise<void> {
  const { maxPerPayment, maxPerDay } = buyer.options
  const decimals = tokenOf(buyer, network, asset)?.decimals ?? 0
  if (!/^\d{1,78}$/.test(amount) || BigInt(amount) > toUnits(maxPerPayment, decimals))
    throw new BuyerError("OVER_CAP", `${amount} base units are more than the cap of ${maxPerPayment} for one payment.`)
  if (maxPerDay === undefined || !isNew) return
  const name = `spent ${new Date().toISOString().slice(0, 10)} ${network} ${asset.toLowerCase()}`
  const spent = BigInt((await buyer.store.get(name)) ?? "0") + BigInt(amount)
  if (spent > toUnits(maxPerDay, decimals))
    throw new BuyerError("OVER_CAP", `With ${amount} base units more the cap of ${maxPerDay} a day is passed.`)
  await buyer.store.set(name, `${spent}`)
}

async function read({ store }: Buyer, name: string): Promise<Kept | undefined> {
  const text = await store.get(name)
  return text === undefined ? undefined : (JSON.parse(text) as Kept)
}

async function keep({ store }: Buyer, name: string, kept: Kept): Promise<Kept> {
  await store.set(name, JSON.stringify(kept))
  return kept
}

const newNonce = (): `0x${string}` =>
  `0x${Array.from(crypto.getRandomValues(new Uint8Array(32)), byte => byte.toString(16).padStart(2, "0")).join("")}`

/** The name of a purchase: method, address and body. */
async function nameOf(url: string, { method = "GET", body }: RequestInit): Promise<string> {
  if (body !== undefined && body !== null && typeof body !== "string")
    throw new TypeError("The body of a paid request must be text: it may have to be sent again.")
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(body ?? ""))
  const hex = Array.from(new Uint8Array(digest), byte => byte.toString(16).padStart(2, "0")).join("")
  return `${method} ${url} ${hex}`
}

const pending = (url: string) =>
  new BuyerError(
    "PENDING",
    `The payment for ${url} may still be carried out. Buy the same again: it is not paid twice.`,
  )
const paid = (url: string) =>
  new BuyerError(
    "ALREADY_PAID",
    `The payment for ${url} was carried out before, and its answer can't be had again here.`,
  )
const refused = async (answer: Response) =>
  new BuyerError("REFUSED", `The payment was refused: ${(await answer.text()).slice(0, 500)}`)

function memory(): BuyerStore {
  const all = new Map<string, string>()
  return { get: name => all.get(name), set: (name, value) => all.set(name, value), delete: name => all.delete(name) }
}

/** Runs tasks with the same name one after another. */
function lanes() {
  const last = new Map<string, Promise<unknown>>()
  return async <T>(name: string, work: () => Promise<T>): Promise<T> => {
    const mine = (last.get(name) ?? Promise.resolve()).then(work, work)
    last.set(name, mine)
    try {
      return await mine
    } finally {
      if (last.get(name) === mine) last.delete(name)
    }
  }
}
