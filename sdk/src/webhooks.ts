/** Events: checked against their signature, and typed by their name. */
import type { webhooks as bodies } from "../../tools/openapi/api.d.ts"
import { eventNames } from "./resources.ts"

/** The name of an event that this version knows. */
export type EventName = keyof bodies

type BodyOf<N extends EventName> = bodies[N]["post"]["requestBody"]["content"]["application/json"]

/** One event. `type` is its name, and determines the type of `data`. */
export type EventOf<N extends EventName> = {
  [K in N]: { id: string; type: K; createdAt: string; data: BodyOf<K> extends { data: infer D } ? D : never }
}[N]

/**
 * An event that the service sends. A newer service may send names that this version does not know. They arrive like the
 * others, with `data` unchanged, so end a `switch` with a `default` that does nothing.
 */
export type SluiceEvent = EventOf<EventName>

/** The accepted kinds of headers: those of `fetch`, those of Node, or a plain object. */
export type HeadersLike = Headers | Record<string, string | readonly string[] | undefined>

/** Why a request is not an event of the service. */
export class SignatureError extends Error {
  override readonly name = "SignatureError"
}

const TOLERANCE_S = 300
const encoder = new TextEncoder()
const decoder = new TextDecoder("utf-8", { fatal: true })

/**
 * Checks that the service sent a request, and returns its event. `body` is the received body, byte for byte. `secrets`
 * are the endpoint's secret and, for 24 hours after a roll, the previous one. Throws a {@link SignatureError} for a
 * wrong or missing signature, and for a body that is not an event. It also does for a signature older than
 * `toleranceSeconds` (300 by default). Throws a TypeError for a parsed body.
 *
 * @example const event = await webhooks.verify(await request.text(), request.headers, secret)
 */
export async function verify(
  body: string | Uint8Array | ArrayBuffer,
  headers: HeadersLike,
  secrets: string | readonly string[],
  { toleranceSeconds = TOLERANCE_S, now = Date.now() }: { toleranceSeconds?: number; now?: number } = {},
): Promise<SluiceEvent> {
  if (typeof body !== "string" && !(body instanceof Uint8Array) && !(body instanceof ArrayBuffer))
    throw new TypeError("Pass the raw body, as text or bytes. A parsed body has lost the bytes that were signed.")
  const keys = [secrets].flat().filter(secret => secret !== "")
  if (keys.length === 0) throw new TypeError("Pass the endpoint's secret: it begins with whsec_.")
  const header = headerOf(headers, "service-signature")
  if (header === undefined) throw new SignatureError("The request has no Service-Signature.")
  const { t, signatures } = parse(header)
  // Written this way so that NaN is refused too.
  if (!(Math.abs(now / 1_000 - t) <= toleranceSeconds))
    throw new SignatureError(
      `The signature is of ${new Date(t * 1_000).toISOString()}, too far from this machine's time.`,
    )
  const bytes = typeof body === "string" ? encoder.encode(body) : new Uint8Array(body)
  const signed = joined(encoder.encode(`${t}.`), bytes)
  if (!(await isSigned(keys, signatures, signed)))
    throw new SignatureError("No signature fits the body. Check the secret, and that the body is unchanged.")
  return eventOf(bytes)
}

/**
 * Signs an event as the service would, for tests of your own handler. Returns the body and the headers to send.
 *
 * @example const { body, headers } = await webhooks.sign({ type: "ping", data: { webhookId: "wh_1" } }, secret)
 */
export async function sign(
  event: { type: string; data: unknown; id?: string; createdAt?: string },
  secret: string,
  { now = Date.now() }: { now?: number } = {},
): Promise<{ body: string; headers: Record<string, string> }> {
  const id = event.id ?? `evt_${crypto.randomUUID().replaceAll("-", "").slice(0, 24)}`
  const createdAt = event.createdAt ?? new Date(now).toISOString()
  const body = JSON.stringify({ id, event: event.type, createdAt, data: event.data })
  const t = Math.floor(now / 1_000)
  const mac = await crypto.subtle.sign("HMAC", await keyOf(secret, "sign"), encoder.encode(`${t}.${body}`))
  const hex = [...new Uint8Array(mac)].map(byte => byte.toString(16).padStart(2, "0")).join("")
  return {
    body,
    headers: {
      "content-type": "application/json",
      "service-signature": `t=${t},v1=${hex}`,
      "webhook-id": id,
      "webhook-timestamp": `${t}`,
      "idempotency-key": id,
    },
  }
}

/** Whether this version knows an event by its name. */
export const isKnown = (name: string): name is EventName => (eventNames as readonly string[]).includes(name)

function headerOf(headers: HeadersLike, name: string): string | undefined {
  if (typeof (headers as Headers).get === "function") return (headers as Headers).get(name) ?? undefined
  const entries = Object.entries(headers as Record<string, string | readonly string[] | undefined>)
  const value = entries.find(([key]) => key.toLowerCase() === name)?.[1]
  return typeof value === "string" || value === undefined ? value : value.join(",")
}

/** The time and signatures of `t=1795900000,v1=<hex>,v1=<hex>`. Unknown parts, from newer versions, are ignored. */
function parse(header: string): { t: number; signatures: Uint8Array<ArrayBuffer>[] } {
  const parts = header.split(",").map(part => part.trim().split("=", 2))
  const times = parts.filter(([name]) => name === "t").map(([, value]) => value ?? "")
  const [time = ""] = times
  if (times.length !== 1 || !/^\d{1,12}$/.test(time))
    throw new SignatureError("Service-Signature has not one time `t`.")
  const signatures = parts.flatMap(([name, value = ""]) =>
    name === "v1" && /^[0-9a-f]{64}$/.test(value)
      ? [Uint8Array.from(value.match(/../g) ?? [], pair => Number.parseInt(pair, 16))]
      : [],
  )
  if (signatures.length === 0) throw new SignatureError("Service-Signature has no `v1` of 64 hexadecimal digits.")
  return { t: Number(time), signatures }
}

/** Whether one of the signatures is by one of the keys; WebCrypto compares in constant time. */
async function isSigned(
  secrets: readonly string[],
  signatures: readonly Uint8Array<ArrayBuffer>[],
  signed: Uint8Array<ArrayBuffer>,
): Promise<boolean> {
  const found: boolean[] = []
  for (const secret of secrets) {
    const key = await keyOf(secret, "verify")
    for (const signature of signatures) found.push(await crypto.subtle.verify("HMAC", key, signature, signed))
  }
  return found.includes(true)
}

const keyOf = (secret: string, use: "sign" | "verify") =>
  crypto.subtle.importKey("raw", encoder.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, [use])

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const whole = new Uint8Array(a.length + b.length)
  whole.set(a)
  whole.set(b, a.length)
  return whole
}

function eventOf(bytes: Uint8Array): SluiceEvent {
  let body: { id?: unknown; event?: unknown; createdAt?: unknown; data?: unknown } | null
  try {
    body = JSON.parse(decoder.decode(bytes))
  } catch (cause) {
    throw new SignatureError("The body is signed, and is not JSON.", { cause })
  }
  const { id, event, createdAt, data } = body ?? {}
  if (typeof id !== "string" || typeof event !== "string" || typeof createdAt !== "string")
    throw new SignatureError("The body is signed, and is not an event.")
  return { id, type: event, createdAt, data } as SluiceEvent
}
