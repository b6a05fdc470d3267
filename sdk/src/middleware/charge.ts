/** `charge`: sells a route through the facilitator. The money goes from the buyer to the seller's own address. */
import { toUnits } from "../money.ts"
import {
  type Admitted,
  type Answer,
  type Asked,
  answer,
  free,
  type Gate,
  type Handled,
  isAnswer,
  isGood,
} from "./gate.ts"
import { nameOfPayment, paidAnswers } from "./paid-answers.ts"
import { memoryStore, type Retry, type Store, TOKEN_MS, tokensOf } from "./retry-token.ts"
import { checkedOnce, openService, type Service, type ServiceOptions } from "./service.ts"
import { bodyOf, type Settled, type Settling, settle } from "./settle.ts"
import { parsePayment, paymentRequired, readPayment, responseHeader, type Sold, type Terms, termsFor } from "./wire.ts"

/** A decimal number of whole tokens, such as "0.05"; nothing or "0" means free. */
export type Price = string | null | undefined

/** How a handler and its payment depend on each other. */
export interface SettleOptions extends ServiceOptions {
  /**
   * `after`, the default: the payment is verified, the handler runs, and its answer is held back. If the answer is good
   * (2xx), the payment is settled, and only then is the answer sent. `before`: the payment is settled first, so that
   * the handler may stream. If it fails, its answer has a `Sluice-Retry-Token`, with which the same call costs nothing.
   */
  settle?: "after" | "before"
  /** Remembers which retry tokens were used. The default is this process's memory; several processes must share one. */
  store?: Store
  /** Signs retry tokens; derived from the service's API key by default. */
  secret?: string
}

export interface ChargeOptions<Native = unknown> extends SettleOptions {
  /** The price of a call, or a function of the request, which must return the same price for the same request. */
  price: string | ((request: Native) => Price | Promise<Price>)
  /** The seller's own address. */
  payTo: string
  /** CAIP-2, such as `eip155:8453`; the first network of the service by default. */
  network?: string
  /** The text that clients show to the payer. */
  description?: string
  mimeType?: string
}

/** What `charge` needs from its caller, which may price or judge by more than the request and the status. */
export interface ChargeRules {
  price(asked: Asked): Promise<Price>
  /** Whether the handler delivered what was requested. */
  isServed(handled: Handled): boolean
}

const TIMEOUT_S = 60
const RETRY_TOKEN = "sluice-retry-token"

interface Seller {
  service: Service
  options: ChargeOptions<never>
  rules: ChargeRules
  store: Store
  tokens: ReturnType<typeof tokensOf>
  answers: ReturnType<typeof paidAnswers>
  /** The token of the network; set by the check. */
  asset: { network: string; asset: string; decimals: number; name: string; version: string } | undefined
}

/** One paid call. */
interface Paying extends Settling {
  sold: Sold
  terms2: Terms
  url: string
  /** The name by which its answer is repeated; undefined for a payment without a payer's id. */
  name: string | undefined
}

/** Opens the gate of a route. Throws a TypeError for an invalid address or price. */
export function chargeGate(options: ChargeOptions<never>, rules: ChargeRules): Gate {
  if (!/^0x[0-9a-fA-F]{40}$/.test(options.payTo)) throw new TypeError("payTo must be an address: 0x and 40 digits.")
  if (typeof options.price === "string") toUnits(options.price, 18)
  const service = openService(options)
  const seller: Seller = {
    service,
    options,
    rules,
    store: options.store ?? memoryStore(),
    tokens: tokensOf(options.secret ?? service.apiKey),
    answers: paidAnswers(),
    asset: undefined,
  }
  const ready = checkedOnce(() => check(seller))
  return { ready, admit: async asked => await admit(seller, ready, asked) }
}

/**
 * Finds what the facilitator settles, and checks that it accepts our key. It follows a redirect only to report where it
 * leads, and then sells nothing. Otherwise a page that answers 200 to everything would pass for a facilitator.
 */
async function check(seller: Seller): Promise<void> {
  const { service, options } = seller
  const heard = await service.call("/x402/supported", { redirect: "follow", retries: 1 })
  if (!heard) throw new Error(`No Sluice answers at ${service.baseUrl}: nothing is sold until it does.`)
  if (heard.url && heard.url !== `${service.baseUrl}/x402/supported`)
    throw new Error(`${service.baseUrl} redirects to ${heard.url}: set baseUrl to where the service is.`)
  const kinds = heard.status === 200 && Array.isArray(heard.body?.kinds) ? (heard.body.kinds as Kind[]) : []
  const kind = kinds.find(
    ({ x402Version, scheme, network, extra }) =>
      x402Version === 2 && scheme === "exact" && extra && network === (options.network ?? network),
  )
  if (!kind?.extra)
    throw new Error(
      kinds.length > 0
        ? `The service settles no payments on ${options.network}: it has ${kinds.map(({ network }) => network).join(", ")}.`
        : `${service.baseUrl} answered HTTP ${heard.status}, and is no facilitator.`,
    )
  const probe = await service.call("/x402/verify", {
    method: "POST",
    body: { x402Version: 2, paymentPayload: {}, paymentRequirements: {} },
    retries: 1,
  })
  if (probe?.status !== 200 || probe.body?.isValid !== false)
    throw new Error(`The service refuses the API key (HTTP ${probe?.status}): ${probe?.body?.message ?? "no answer"}`)
  const asset = { network: kind.network, ...kind.extra }
  if (typeof options.price === "string") toUnits(options.price, asset.decimals)
  seller.asset = asset
}

interface Kind {
  x402Version: number
  scheme: string
  network: string
  extra?: { asset: string; decimals: number; name: string; version: string }
}

async function admit(seller: Seller, ready: () => Promise<void>, asked: Asked): Promise<Answer | Admitted> {
  const { rules, tokens } = seller
  const price = await rules.price(asked)
  if (price === null || price === undefined) return free
  const isUp = await ready().then(
    () => true,
    () => false,
  )
  const { asset } = seller
  if (!isUp || !asset) return unavailable("Payments can't be taken now. Nothing was paid.")
  const amount = toUnits(price, asset.decimals)
  if (amount === 0n) return free
  const { payTo, description = "", mimeType = "application/json" } = seller.options
  const sold = { url: asked.url, description, mimeType }
  const { network, asset: token } = asset
  const terms: Terms = {
    scheme: "exact",
    network,
    amount: `${amount}`,
    asset: token,
    payTo,
    maxTimeoutSeconds: TIMEOUT_S,
    extra: { name: asset.name, version: asset.version },
  }
  const url = `${asked.method} ${pathOf(asked.url)}`
  const token402 = asked.header(RETRY_TOKEN)
  if (token402 !== undefined)
    return await redeem(seller, await tokens.read(token402, url), { sold, terms2: terms, url })
  const payment = asked.method === "HEAD" ? undefined : readPayment(asked.header)
  if (payment === undefined) return ask(terms, sold, "Payment is required.")
  const wanted = payment === "unreadable" ? undefined : termsFor(payment.version, terms, sold)
  if (payment === "unreadable" || !wanted)
    return answer(400, {
      error: "INVALID_PAYMENT",
      message: "The payment header can't be read, or is of a version that this network lacks.",
    })
  const name = await nameOfPayment(payment.payload, async () => [url, terms, await asked.body()])
  const earlier = await seller.answers.find(name)
  if (earlier) return earlier
  const paying = { payment, terms: wanted, terms2: terms, sold, url, key: crypto.randomUUID(), name }
  return seller.options.settle === "before" ? await settleFirst(seller, paying) : await settleAfter(seller, paying)
}

/** Verifies, lets the handler run, and settles once it has delivered. */
async function settleAfter(seller: Seller, paying: Paying): Promise<Answer | Admitted> {
  const heard = await seller.service.call("/x402/verify", { method: "POST", body: bodyOf(paying), retries: 2 })
  if (heard?.status !== 200 || typeof heard.body?.isValid !== "boolean")
    return unavailable(`The payment can't be verified now, and nothing was paid. ${heard?.body?.message ?? ""}`)
  const { isValid, invalidReason, invalidMessage } = heard.body
  if (!isValid) return ask(paying.terms2, paying.sold, `${invalidReason}`, `${invalidMessage ?? invalidReason}`)
  return {
    isHeld: true,
    payer: paying.payment.from,
    headersFor: () => ({}),
    finish: async handled => {
      if (!handled.isWhole || !seller.rules.isServed(handled)) return {}
      // The same payer's first request, whose connection broke while this one ran.
      const earlier = await seller.answers.find(paying.name)
      if (earlier) return earlier
      const result = conclude(seller, paying)
      void seller.answers.keep(paying.name, result.then(toKeep(handled)))
      return await result
    },
  }
}

/** Settles after the handler. */
async function conclude(seller: Seller, paying: Paying): Promise<Answer | Record<string, string>> {
  const settled = await settle(seller.service, paying)
  return settled.state === "paid"
    ? responseHeader(paying.payment.version, settled.answer)
    : await refusalOf(seller, paying, settled)
}

/** The answer to keep: the handler's, or a token for it. Nothing is kept if there was no payment. */
const toKeep =
  ({ status, headers, body }: Handled) =>
  (result: Answer | Record<string, string>): Answer | undefined => {
    if (isAnswer(result)) return result.status === 202 ? result : undefined
    return body && { status, headers: { ...headers, ...result }, body }
  }

/** Settles, and lets the handler run. If the handler fails, the payer may call again. */
async function settleFirst(seller: Seller, paying: Paying): Promise<Answer | Admitted> {
  const { store } = seller
  if (!(await store.take(nameOf(paying), TOKEN_MS)))
    return answer(409, { error: "PAYMENT_ALREADY_SERVED", message: "What was paid for was served before." })
  const settled = await settle(seller.service, paying)
  if (settled.state !== "paid") {
    await store.drop(nameOf(paying))
    return await refusalOf(seller, paying, settled)
  }
  const token = { [RETRY_TOKEN]: await tokenOf(seller, paying) }
  const result = responseHeader(paying.payment.version, settled.answer)
  const isHeld = seller.options.settle !== "before"
  // A stream that breaks off later can't be given a token then. To give one in advance, the store must outlive this
  // process.
  const isEarly = seller.options.store !== undefined
  return {
    isHeld,
    isSettled: true,
    payer: paying.payment.from,
    headersFor: status => ({ ...result, ...(isGood(status) && !isEarly ? {} : token) }),
    finish: async handled => {
      const isServed = handled.isWhole && seller.rules.isServed(handled)
      const again = isServed ? toKeep(handled)(result) : pendingWith(token)
      void seller.answers.keep(paying.name, Promise.resolve(again))
      if (!isServed) await store.drop(nameOf(paying))
      return isServed ? result : { ...result, ...token }
    },
  }
}

const nameOf = ({ key }: Paying) => `sluice:${key}`

/** A call with a retry token, settled by the key of its first request, which no other answer matches. */
async function redeem(
  seller: Seller,
  retry: Retry | undefined,
  now: Pick<Paying, "sold" | "terms2" | "url">,
): Promise<Answer | Admitted> {
  const payment = retry ? parsePayment(retry.payload) : "unreadable"
  const isSame = retry && JSON.stringify(retry.terms) === JSON.stringify(now.terms2)
  if (!retry || payment === "unreadable" || !isSame)
    return answer(400, {
      error: "INVALID_RETRY_TOKEN",
      message: "Sluice-Retry-Token is not valid for this request: send it with its original request, within 24 hours.",
    })
  const terms = termsFor(payment.version, now.terms2, now.sold) ?? now.terms2
  const earlier = await seller.answers.find(retry.key)
  // The answer to a token differs from the token itself.
  if (earlier && earlier.status !== 202) return earlier
  return await settleFirst(seller, { ...now, payment, terms, key: retry.key, name: retry.key })
}

const tokenOf = ({ tokens }: Seller, { key, payment, terms2, url }: Paying): Promise<string> =>
  tokens.make({ key, payload: payment.payload, terms: { ...terms2 }, url })

async function refusalOf(
  seller: Seller,
  paying: Paying,
  settled: Exclude<Settled, { state: "paid" }>,
): Promise<Answer> {
  if (settled.state === "refused") return ask(paying.terms2, paying.sold, settled.reason, settled.message)
  const token = { [RETRY_TOKEN]: await tokenOf(seller, paying) }
  // The answer has the token too: one of several settlement attempts may have been lost, and still arrive.
  return settled.state === "unavailable" ? unavailable(settled.message, token) : pendingWith(token)
}

const pendingWith = (token: Record<string, string>): Answer =>
  answer(
    202,
    {
      status: "settlement_pending",
      message:
        "The payment is being carried out. Do not pay again: repeat this request with the Sluice-Retry-Token of this answer.",
    },
    { ...token, "retry-after": "2" },
  )

/** Answers 402. */
function ask(terms: Terms, sold: Sold, error: string, message = error): Answer {
  const { header, body } = paymentRequired(terms, sold, error, message)
  return answer(402, body, { "payment-required": header })
}

const unavailable = (message: string, headers: Record<string, string> = {}): Answer =>
  answer(503, { error: "PAYMENTS_UNAVAILABLE", message: message.trim() }, { "retry-after": "5", ...headers })

const pathOf = (url: string): string => {
  const { pathname, search } = new URL(url)
  return pathname + search
}
