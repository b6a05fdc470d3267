/**
 * What an assistant can do with a wallet on this machine: ask for prices, pay, fetch what it paid for, and see what
 * was spent.
 */
import { BuyerError, openBuyer, type SpendableToken } from "../../../sdk/src/buyer/buyer.ts"
import { placeOf } from "../../../sdk/src/buyer/place.ts"
import type { Wallet } from "../../../sdk/src/buyer/sign.ts"
import { decode, type Terms } from "../../../sdk/src/middleware/wire.ts"
import { fromUnits } from "../../../sdk/src/money.ts"
import { fileStore, lockOf } from "./wallet-file.ts"

/** The limits of the assistant. */
export interface Rules {
  /** In whole tokens. */
  maxPerCall: string
  maxPerDay: string
  /** The hosts that the assistant may pay, with their ports. */
  hosts: readonly string[]
  tokens: readonly SpendableToken[]
}

/** What a tool returns: our own sentence and facts, and, separately, what a seller wrote. */
export interface Answer {
  sentence: string
  result: Record<string, unknown>
  untrusted: Record<string, unknown>
}

/** Says in a sentence why nothing was done; `cause` is what a seller wrote. */
export class Refused extends Error {}

/** How many characters of a seller's text are passed on. */
const MAX_TEXT = 20_000
const TIMEOUT_MS = 60_000

const isLoopback = (host: string): boolean => /^(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?$/.test(host)

/** Creates the tools for one wallet; `folder` is where it stores what it has spent. */
export function buyerTools(wallet: Wallet, rules: Rules, folder: string) {
  const name = `${folder}/buyer-${wallet.address.toLowerCase()}`
  const store = fileStore(`${name}.json`)
  const oneByOne = lockOf(`${name}.lock`)
  const buyer = openBuyer({
    wallet,
    maxPerPayment: rules.maxPerCall,
    maxPerDay: rules.maxPerDay,
    tokens: rules.tokens,
    store,
    // A redirect could lead to a host that may not be paid.
    fetch: async (input, init) => await fetch(input, { ...init, redirect: "manual", signal: limitOf(init) }),
  })
  const spent = () => spentToday(store.all(), rules)
  const paying = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await oneByOne(work)
    } catch (error) {
      if (!(error instanceof BuyerError)) throw error
      // The message may contain a seller's words.
      throw new Refused(sentences[error.code], { cause: error.message })
    }
  }
  return {
    quote: async ({ url }: { url: string }): Promise<Answer> => await quote(allowed(url, rules), rules),
    pay: async ({ url }: { url: string }): Promise<Answer> => {
      const place = allowed(url, rules)
      const answer = await paying(() => buyer.pay(place))
      return { sentence: "It is paid.", result: { paid: true, spentToday: spent() }, untrusted: { "/answer": answer } }
    },
    access: async ({ url, method = "GET", body }: { url: string; method?: string; body?: string }): Promise<Answer> => {
      const place = allowed(url, rules)
      const headers = body === undefined ? {} : { "content-type": "application/json" }
      const response = await paying(() =>
        buyer.fetch(place, { method, headers, ...(body === undefined ? {} : { body }) }),
      )
      const text = await response.text()
      return {
        sentence: `The service answered HTTP ${response.status}.`,
        result: { status: response.status, isWhole: text.length <= MAX_TEXT, spentToday: spent() },
        untrusted: { "/body": text.slice(0, MAX_TEXT) },
      }
    },
    spent: async (): Promise<Answer> => ({
      sentence: `This wallet spends at most ${rules.maxPerDay} of each token a day (UTC), and ${rules.maxPerCall} for one purchase.`,
      result: {
        address: wallet.address,
        spentToday: spent(),
        maxPerCall: rules.maxPerCall,
        maxPerDay: rules.maxPerDay,
      },
      untrusted: {},
    }),
  }
}

const sentences: Record<BuyerError["code"], string> = {
  OVER_CAP: "The price is above what this wallet may spend for one purchase or in a day. Nothing was paid.",
  UNKNOWN_TOKEN: "The price is in a token that this wallet may not spend. Nothing was paid.",
  REFUSED: "The payment was refused. `spent` shows what counts as spent.",
  PENDING: "The payment may still be executed. Repeat the same purchase later: it is not paid twice.",
  ALREADY_PAID: "This was paid before, and its answer can't be fetched again here.",
  NOT_PAYABLE: "This can't be paid here. Nothing was paid.",
}

const limitOf = (init: RequestInit | undefined): AbortSignal =>
  init?.signal ? AbortSignal.any([init.signal, AbortSignal.timeout(TIMEOUT_MS)]) : AbortSignal.timeout(TIMEOUT_MS)

/** Returns the address if its host may be paid; throws a {@link Refused} otherwise. */
function allowed(text: string, { hosts }: Rules): string {
  if (!URL.canParse(text)) throw new Refused("The url is not an address.")
  const { protocol, host, username, href } = new URL(text)
  if (protocol !== "https:" && !(protocol === "http:" && isLoopback(host)))
    throw new Refused("The url must start with https://.")
  if (username !== "" || !hosts.includes(host))
    throw new Refused(`This wallet may not pay there. --allow-host allows only ${hosts.join(", ")}.`)
  return href
}

/** Determines what something costs, without paying. */
async function quote(url: string, rules: Rules): Promise<Answer> {
  const place = placeOf(url) ?? { url, init: {} }
  if ("checkout" in place) return await quoteCheckout(place.origin, place.checkout)
  const response = await reach(place.url, place.init)
  await response.body?.cancel()
  if (response.status !== 402)
    return {
      sentence: response.ok ? "It costs nothing." : `The service answered HTTP ${response.status}.`,
      result: { status: response.status, prices: [] },
      untrusted: {},
    }
  const required = decode(response.headers.get("payment-required") ?? "") as { accepts?: Terms[] } | undefined
  const prices = (required?.accepts ?? []).flatMap(({ network, asset, amount, scheme }) => {
    const token = rules.tokens.find(
      each => each.network === network && each.address.toLowerCase() === `${asset}`.toLowerCase(),
    )
    const isKnown = token && scheme === "exact" && /^\d{1,78}$/.test(amount)
    return isKnown ? [{ amount: fromUnits(BigInt(amount), token.decimals), network, token: token.address }] : []
  })
  const [first] = prices
  return {
    sentence: first ? `It costs ${first.amount}.` : "The price can't be paid in any token that this wallet may spend.",
    result: { status: response.status, prices },
    untrusted: {},
  }
}

const AMOUNT = /^\d{1,78}(\.\d{1,18})?$/

async function quoteCheckout(origin: string, id: string): Promise<Answer> {
  const response = await reach(`${origin}/api/pay/status/${id}`, {})
  const { amount, amountReceived, status, currency, description } = (await response.json().catch(() => ({}))) as Record<
    string,
    string | undefined
  >
  if (!response.ok || !AMOUNT.test(`${amount}`) || !/^[a-z_]{1,30}$/.test(`${status}`))
    throw new Refused(`The service answered HTTP ${response.status} without a price.`)
  return {
    sentence: `The checkout asks for ${amount}. Its status is ${status}.`,
    result: { status, amount, amountReceived: AMOUNT.test(`${amountReceived}`) ? amountReceived : null },
    untrusted: { "/currency": currency, "/description": description ?? null },
  }
}

async function reach(url: string, init: RequestInit): Promise<Response> {
  try {
    return await fetch(url, { ...init, redirect: "manual", signal: AbortSignal.timeout(TIMEOUT_MS) })
  } catch {
    throw new Refused("The address can't be reached.")
  }
}

function spentToday(kept: Record<string, string>, { tokens }: Rules) {
  const today = new Date().toISOString().slice(0, 10)
  return tokens.map(({ network, address, decimals }) => ({
    network,
    token: address,
    amount: fromUnits(BigInt(kept[`spent ${today} ${network} ${address.toLowerCase()}`] ?? "0"), decimals),
  }))
}
