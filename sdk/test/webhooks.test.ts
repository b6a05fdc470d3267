// Events: what the service signs is accepted here and by the libraries that others use, and nothing else is.
import fc from "fast-check"
import { Webhook } from "standardwebhooks"
import Stripe from "stripe"
import { describe, expect, it } from "vitest"
import { signatureHeaders } from "../../server/src/account/webhooks/webhook.ts"
import { type SluiceEvent, webhooks } from "../src/index.ts"

const secret = `whsec_${Buffer.alloc(32, 7).toString("base64")}`
const previous = `whsec_${Buffer.alloc(32, 8).toString("base64")}`
const event = {
  id: "evt_tz4a98xxat96iws9zmbrgj3a",
  event: "checkout.session.completed",
  createdAt: "2026-01-31T12:00:00.000Z",
  data: { id: "cs_1", amount: "5.00", description: "Zwei Bücher – 東京 ☕" },
}
const body = JSON.stringify(event)
const nowS = () => Math.floor(Date.now() / 1_000)
const signed = (text = body, secrets = [secret], t = nowS()) =>
  signatureHeaders(secrets, { eventId: event.id, body: text, t })

const accepted = async (work: () => unknown): Promise<boolean> => {
  try {
    await work()
    return true
  } catch {
    return false
  }
}
/** Whether ours, Stripe's and Standard Webhooks' libraries accept a request. */
const verdicts = async (text: string, headers: Record<string, string>) => [
  await accepted(() => webhooks.verify(text, headers, secret)),
  await accepted(() => Stripe.webhooks.constructEvent(text, headers["service-signature"] ?? "", secret)),
  await accepted(() => new Webhook(secret).verify(text, headers)),
]

describe("verify", () => {
  it("returns the event of what the service signs, from every form of body and headers", async () => {
    const expected = { id: event.id, type: event.event, createdAt: event.createdAt, data: event.data }
    const headers = signed()
    const bytes = new TextEncoder().encode(body)
    const upper = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), value]))
    const node = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name, [value]]))
    for (const each of [headers, new Headers(headers), upper, node])
      for (const raw of [body, bytes, Buffer.from(bytes), bytes.buffer])
        expect(await webhooks.verify(raw, each, secret)).toEqual(expected)
  })

  it("accepts what the others accept, and refuses ten thousand changed requests that they refuse", async () => {
    expect(await verdicts(body, signed())).toEqual([true, true, true])
    const headers = signed()
    const bytes = Buffer.from(body)
    const change = fc.oneof(
      fc.record({ at: fc.nat(bytes.length - 1), to: fc.integer({ min: 1, max: 255 }) }).map(({ at, to }) => {
        const changed = Buffer.from(bytes)
        changed[at] = (changed[at] ?? 0) ^ to
        return changed
      }),
      fc.nat(bytes.length - 1).map(length => bytes.subarray(0, length)),
      fc.string({ minLength: 1, maxLength: 40 }).map(more => Buffer.concat([bytes, Buffer.from(more)])),
      fc.nat(bytes.length).map(at => Buffer.concat([bytes.subarray(0, at), Buffer.from(" "), bytes.subarray(at)])),
    )
    await fc.assert(
      fc.asyncProperty(change, async changed => {
        const text = changed.toString("latin1") === bytes.toString("latin1") ? "{}" : changed.toString()
        expect(await verdicts(text, headers)).toEqual([false, false, false])
        expect(await accepted(() => webhooks.verify(changed, headers, secret))).toBe(false)
      }),
      { numRuns: 10_000, seed: 7 },
    )
  })

  it("accepts a signature by one of several secrets, during a roll", async () => {
    for (const by of [[secret], [previous], [secret, previous]])
      expect((await webhooks.verify(body, signed(body, by), [secret, previous])).id).toBe(event.id)
    await expect(webhooks.verify(body, signed(body, [previous]), secret)).rejects.toThrow("No signature fits")
    await expect(webhooks.verify(body, signed(), [])).rejects.toThrow(TypeError)
    await expect(webhooks.verify(body, signed(), "")).rejects.toThrow(TypeError)
  })

  it("refuses a signature that is too old, or of the future", async () => {
    const at = (ageS: number, options = {}) =>
      webhooks.verify(body, signed(body, [secret], nowS() - ageS), secret, options)
    for (const ageS of [-290, 0, 290]) expect((await at(ageS)).id).toBe(event.id)
    for (const ageS of [-310, 310]) await expect(at(ageS)).rejects.toThrow("too far")
    expect((await at(3_000, { toleranceSeconds: 3_600 })).id).toBe(event.id)
    for (const options of [{ toleranceSeconds: Number.NaN }, { now: Number.NaN }])
      await expect(at(0, options)).rejects.toThrow("too far")
  })

  it.each([
    ["no header", {}, "no Service-Signature"],
    ["no time", { "service-signature": "v1=00" }, "not one time"],
    ["two times", { "service-signature": `t=1,${signed()["service-signature"]}` }, "not one time"],
    ["a time that is no number", { "service-signature": "t=1e9,v1=00" }, "not one time"],
    ["no signature", { "service-signature": `t=${nowS()}` }, "no `v1`"],
    ["a short signature", { "service-signature": `t=${nowS()},v1=abcd` }, "no `v1`"],
    ["another scheme", { "service-signature": signed()["service-signature"]?.replace("v1", "v0") }, "no `v1`"],
  ])("refuses %s, and says so", async (_what, headers, message) => {
    await expect(webhooks.verify(body, headers as Record<string, string>, secret)).rejects.toThrow(message)
  })

  it("says that a parsed body has lost its bytes", async () => {
    await expect(webhooks.verify(event as never, signed(), secret)).rejects.toThrow("Pass the raw body")
  })

  it("passes on names, fields and values that this version does not know", async () => {
    const newer = JSON.stringify({
      ...event,
      event: "invoice.paid",
      data: { status: "unheard", more: { deep: 1 } },
      extra: 1,
    })
    const known = await webhooks.verify(newer, signed(newer), secret)
    expect(known).toMatchObject({ type: "invoice.paid", data: { status: "unheard", more: { deep: 1 } } })
    expect([webhooks.isKnown("invoice.paid"), webhooks.isKnown("ping")]).toEqual([false, true])
  })

  it("refuses a signed body that is no event", async () => {
    for (const text of ["[]", "null", "{}", "no json", '{"id":"evt_1","event":1,"createdAt":"2026-01-31"}'])
      await expect(webhooks.verify(text, signed(text), secret)).rejects.toThrow("The body is signed, and is not")
  })
})

describe("sign", () => {
  it("makes what verify and Stripe's library accept", async () => {
    const { body, headers } = await webhooks.sign({ type: "ping", data: { webhookId: "wh_1" } }, secret)
    expect(await webhooks.verify(body, headers, secret)).toMatchObject({ type: "ping", data: { webhookId: "wh_1" } })
    Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", secret)
  })
})

/** Compiled, never run: the name of an event says what its data is. */
export function typed(event: SluiceEvent): string {
  if (event.type === "checkout.session.completed") return event.data.amount
  if (event.type === "ping") return event.data.webhookId
  // @ts-expect-error: no event has this name.
  if (event.type === "checkout.completed") return ""
  return event.id
}
