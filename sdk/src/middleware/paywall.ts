/** `paywall`: admits requests with an access token of a paywall, or with a payment for it by x402. */
import { accessTokens } from "./access-token.ts"
import type { SettleOptions } from "./charge.ts"
import { type Admitted, type Answer, type Asked, answer, type Gate, isGood } from "./gate.ts"
import { tokensOf } from "./retry-token.ts"
import { checkedOnce, type Heard, openService, type Service } from "./service.ts"
import { bodyOf } from "./settle.ts"
import { decode, encode, type Payment, parsePayment, readPayment, type Sold, type Terms, termsFor } from "./wire.ts"

export interface PaywallOptions extends Omit<SettleOptions, "store"> {
  /** The paywall's id. */
  id: string
}

const RETRY_TOKEN = "sluice-retry-token"
/** The service's headers about a payment, passed on to the payer. */
const passed = ["payment-required", "payment-response", "x-payment-response", RETRY_TOKEN, "retry-after", "location"]
const USED = "invalid_exact_evm_nonce_already_used"

interface Door {
  service: Service
  id: string
  isAfter: boolean
  /** Whether each payment buys one call. */
  isPerCall: boolean
  tokens: ReturnType<typeof tokensOf>
}

/** Opens the gate of a route. */
export function paywallGate(options: PaywallOptions): Gate {
  if (!/^pw_[a-z0-9]+$/.test(options.id)) throw new TypeError("id must be a paywall's: it begins with pw_.")
  const service = openService(options)
  const tokens = tokensOf(options.secret ?? service.apiKey)
  const door: Door = { service, id: options.id, isAfter: options.settle !== "before", isPerCall: false, tokens }
  const holderOf = accessTokens(service, options.id)
  const ready = checkedOnce(() => check(door))
  return {
    ready,
    admit: async asked => {
      if (
        await ready().then(
          () => false,
          () => true,
        )
      )
        return unavailable("Access can't be checked now. Nothing was paid.")
      const bearer = /^Bearer (\S+)$/i.exec(asked.header("authorization") ?? "")?.[1]
      const holder = bearer && (await holderOf(bearer))
      return holder ? holding(door, holder) : await pay(door, asked)
    },
  }
}

async function check(door: Door): Promise<void> {
  const { service, id } = door
  const heard = await service.call(`/api/paywalls/${id}`, { redirect: "follow", retries: 1 })
  if (!heard) throw new Error(`No Sluice answers at ${service.baseUrl}: nothing is served until it does.`)
  if (heard.url && heard.url !== `${service.baseUrl}/api/paywalls/${id}`)
    throw new Error(`${service.baseUrl} redirects to ${heard.url}: set baseUrl to where the service is.`)
  if (heard.status !== 200 || heard.body?.id !== id)
    throw new Error(
      `The service has no paywall ${id} (HTTP ${heard.status}): ${heard.body?.message ?? "another answer"}`,
    )
  door.isPerCall = heard.body.pricingModel === "per_call"
}

/** Admits a caller who proved a wallet. A paid call is used up once it was served. */
function holding({ service, id, isPerCall }: Door, holder: string): Admitted {
  const key = crypto.randomUUID()
  return {
    isHeld: isPerCall,
    payer: holder,
    headersFor: () => ({}),
    finish: async ({ status, isWhole }) => {
      if (!isPerCall || !isGood(status) || !isWhole) return {}
      const heard = await service.call(`/api/paywalls/${id}/consume`, {
        method: "POST",
        body: { address: holder },
        headers: { "idempotency-key": key },
        retries: 2,
      })
      if (heard?.status === 200 && heard.body?.allowed === true) return {}
      return heard && heard.status < 500
        ? answer(402, { error: "NO_CALLS_LEFT", message: "The wallet has no call left that was paid for." })
        : unavailable("The call can't be counted now. None was used up.")
    },
  }
}

async function pay(door: Door, asked: Asked): Promise<Answer | Admitted> {
  const url = `${asked.method} ${new URL(asked.url).pathname}${new URL(asked.url).search}`
  const token = asked.header(RETRY_TOKEN)
  if (token !== undefined) {
    const retry = await door.tokens.read(token, url)
    const payment = retry && parsePayment(retry.payload)
    if (payment && payment !== "unreadable") return await settleFirst(door, { payment, url })
    return await settleFirst(door, { token, url })
  }
  const payment = asked.method === "HEAD" ? undefined : readPayment(asked.header)
  if (payment === undefined) return passOn(await buy(door, {}))
  if (payment === "unreadable")
    return answer(400, { error: "INVALID_PAYMENT", message: "The payment header can't be read." })
  const named = withIdentifier(payment)
  return door.isAfter
    ? await settleAfter(door, { payment: named, url })
    : await settleFirst(door, { payment: named, url })
}

/** The credentials in a request. */
type Means = { url: string } & ({ payment: Payment } | { token: string })

/**
 * Names the payment, so that the service repeats its answer to us if it was lost. The name is outside the buyer's
 * signature, and random: someone who reads the signature on chain can't repeat it.
 */
function withIdentifier(payment: Payment): Payment {
  const extensions = (payment.payload.extensions ?? {}) as Record<string, { info?: { id?: unknown } } | undefined>
  // Clients repeat what the 402 offered, which has no id.
  if (extensions["payment-identifier"]?.info?.id !== undefined) return payment
  const info = { required: false, id: crypto.randomUUID() }
  return { ...payment, payload: { ...payment.payload, extensions: { ...extensions, "payment-identifier": { info } } } }
}

const headersOf = (means: Means): Record<string, string> =>
  "token" in means
    ? { [RETRY_TOKEN]: means.token }
    : { [means.payment.version === 1 ? "x-payment" : "payment-signature"]: encode(means.payment.payload) }

/** Asks the paywall. A payment with a name, or its token, may be sent again. */
const buy = ({ service, id }: Door, headers: Record<string, string>): Promise<Heard | undefined> =>
  service.call(`/api/agent/paywalls/${id}/settle`, { method: "POST", headers, retries: 2 })

async function settleAfter(door: Door, means: Means & { payment: Payment }): Promise<Answer | Admitted> {
  const offered = await buy(door, {})
  const required = decode(offered?.headers.get("payment-required") ?? "") as
    | { accepts?: Terms[]; resource?: Sold }
    | undefined
  const [terms] = required?.accepts ?? []
  if (offered?.status !== 402 || !terms) return passOn(offered)
  const { payment } = means
  const wanted = termsFor(payment.version, terms, required?.resource ?? { url: "", description: "", mimeType: "" })
  const heard = await door.service.call("/x402/verify", {
    method: "POST",
    body: bodyOf({ payment, terms: wanted ?? terms }),
    retries: 2,
  })
  if (heard?.status !== 200 || typeof heard.body?.isValid !== "boolean")
    return unavailable(`The payment can't be verified now, and nothing was paid. ${heard?.body?.message ?? ""}`)
  const { isValid, invalidReason, invalidMessage } = heard.body
  // It may be the buyer's own retry, which the service recognizes by its name.
  if (!isValid && invalidReason === USED) return await settleFirst(door, means)
  if (!isValid) return passOn(offered, { error: invalidReason, message: invalidMessage })
  return {
    isHeld: true,
    payer: payment.from,
    headersFor: () => ({}),
    finish: async ({ status, isWhole }) => {
      if (!isWhole || !isGood(status)) return {}
      const bought = await buy(door, headersOf(means))
      return bought?.status === 200 ? passedOn(bought) : await unsettled(door, means, bought)
    },
  }
}

/** Settles, and lets the handler run. If the handler fails, the service's retry token repeats the call. */
async function settleFirst(door: Door, means: Means): Promise<Answer | Admitted> {
  const bought = await buy(door, headersOf(means))
  if (bought?.status !== 200) return await unsettled(door, means, bought)
  const headers = passedOn(bought)
  const payer = typeof bought.body?.payer === "string" ? bought.body.payer : undefined
  return { isHeld: door.isAfter, isSettled: true, payer, headersFor: () => headers, finish: async () => headers }
}

/** The service's refusal, or, if no answer came, a token with which the payer can ask again. */
async function unsettled(door: Door, means: Means, heard: Heard | undefined): Promise<Answer> {
  if (heard?.body && heard.status < 500) return passOn(heard)
  const { id, tokens } = door
  const token =
    "token" in means
      ? means.token
      : await tokens.make({ key: id, payload: means.payment.payload, terms: {}, url: means.url })
  return answer(
    202,
    {
      status: "settlement_pending",
      message:
        "Nobody knows yet whether the payment was carried out. Do not pay again: repeat this request with the Sluice-Retry-Token of this answer.",
    },
    { [RETRY_TOKEN]: token, "retry-after": "2" },
  )
}

/** The service's answer, for the payer. */
function passOn(heard: Heard | undefined, more: Record<string, unknown> = {}): Answer {
  if (!heard?.body || heard.status === 200 || heard.status >= 500)
    return unavailable(`Payments can't be taken now. Nothing was paid. ${heard?.body?.message ?? ""}`)
  return answer(heard.status, { ...heard.body, ...more }, passedOn(heard))
}

const passedOn = ({ headers }: Heard): Record<string, string> =>
  Object.fromEntries(passed.flatMap(name => (headers.get(name) === null ? [] : [[name, `${headers.get(name)}`]])))

const unavailable = (message: string): Answer =>
  answer(503, { error: "PAYMENTS_UNAVAILABLE", message: message.trim() }, { "retry-after": "5" })
