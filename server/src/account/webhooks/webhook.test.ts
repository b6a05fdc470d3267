import { randomBytes } from "node:crypto"
import { verify } from "@octokit/webhooks-methods"
import { assert, double, integer, option, property, record } from "fast-check"
import { Webhook } from "standardwebhooks"
import Stripe from "stripe"
import { describe, expect, it } from "vitest"
import { addressRule } from "../../platform/net/public-address.ts"
import { afterAttempt, eventTypes, retryAfterOf, retryDelaysMs, signatureHeaders, urlFault, wants } from "./webhook.ts"

const secret = () => `whsec_${randomBytes(32).toString("base64")}`
const body = JSON.stringify({ id: "evt_1", event: "ping", data: { name: "Zoë ☕" } })
const t = Math.floor(Date.now() / 1_000)

describe("signatures", () => {
  const newest = secret()
  const older = secret()
  const headers = signatureHeaders([newest, older], { eventId: "evt_1", body, t })

  it.each([newest, older])("Service-Signature is valid for Stripe's library, with each overlapping secret", key => {
    const event = Stripe.webhooks.constructEvent(body, headers["service-signature"] ?? "", key)
    expect(event.id).toBe("evt_1")
  })

  it.each([newest, older])("webhook-* are valid for Standard Webhooks, with each overlapping secret", key => {
    expect(new Webhook(key).verify(body, headers)).toMatchObject({ id: "evt_1" })
  })

  it("x-service-signature is valid for Octokit's library, and uses the newest secret", async () => {
    const signature = headers["x-service-signature"] ?? ""
    expect(await verify(newest, body, signature)).toBe(true)
    expect(await verify(older, body, signature)).toBe(false)
  })

  it("are invalid for another body, another secret and an old time", async () => {
    const signed = headers["service-signature"] ?? ""
    const construct = (text: string, key: string) => () => Stripe.webhooks.constructEvent(text, signed, key)
    expect(construct(`${body} `, newest)).toThrow()
    expect(construct(body, secret())).toThrow()
    expect(() => new Webhook(secret()).verify(body, headers)).toThrow()
    expect(() => new Webhook(newest).verify(`${body} `, headers)).toThrow()
    const old = signatureHeaders([newest], { eventId: "evt_1", body, t: t - 3_600 })
    expect(() => Stripe.webhooks.constructEvent(body, old["service-signature"] ?? "", newest)).toThrow(/tolerance/)
    expect(() => new Webhook(newest).verify(body, old)).toThrow(/too old/)
  })

  it("have the documented forms, newest first", () => {
    expect(headers["service-signature"]).toMatch(/^t=\d{10},v1=[0-9a-f]{64},v1=[0-9a-f]{64}$/)
    expect(headers["x-service-signature"]).toMatch(/^sha256=[0-9a-f]{64}$/)
    const alone = signatureHeaders([newest], { eventId: "evt_1", body, t })
    expect(headers["service-signature"]).toContain(alone["service-signature"])
    expect(headers["webhook-signature"]).toBe(
      `${alone["webhook-signature"]} ${signatureHeaders([older], { eventId: "evt_1", body, t })["webhook-signature"]}`,
    )
  })
})

describe("wants", () => {
  it("* is list A and the reversals, and nothing else; the change of a payout address reaches all", () => {
    expect(eventTypes.filter(type => wants(["*"], type))).toEqual([
      "checkout.session.completed",
      "payment.refunded",
      "subscription.renewal.created",
      "checkout.session.reversed",
      "paywall.reversed",
      "settings.payout_address_changed",
      "settings.split_changed",
      "settings.webhook_changed",
    ])
    expect(eventTypes.filter(type => wants(["paywall.granted", "checkout.failed"], type))).toEqual([
      "checkout.failed",
      "paywall.granted",
      "settings.payout_address_changed",
      "settings.split_changed",
      "settings.webhook_changed",
    ])
  })
})

describe("afterAttempt", () => {
  const failure = { status: 500, error: "answered 500", retryAfterMs: undefined }

  it("waits 1 min, 5 min, 30 min, 2 h, 8 h, and then has failed", () => {
    const minutes = [1, 2, 3, 4, 5, 6].map(n => (afterAttempt(n, failure, 0).inMs ?? 0) / 60_000)
    expect(minutes).toEqual([1, 5, 30, 120, 480, 0])
    expect(afterAttempt(6, failure, 0.5)).toEqual({ status: "failed" })
    expect(afterAttempt(1, { ...failure, status: 410 }, 0)).toEqual({ status: "failed" })
    expect(afterAttempt(6, { ...failure, error: null }, 0)).toEqual({ status: "delivered" })
  })

  it("never waits less than stated, nor more than a tenth longer, except for Retry-After: at most twice", () => {
    const asked = option(integer({ min: 0, max: 10 ** 9 }), { nil: undefined })
    assert(
      property(
        record({ n: integer({ min: 1, max: 5 }), asked, random: double({ min: 0, max: 1, noNaN: true }) }),
        ({ n, asked, random }) => {
          const base = retryDelaysMs[n - 1] ?? 0
          const { inMs = 0 } = afterAttempt(n, { ...failure, status: 429, retryAfterMs: asked }, random)
          expect(inMs).toBeGreaterThanOrEqual(base)
          expect(inMs).toBeLessThanOrEqual(base * (asked === undefined ? 1.1 : 2))
          if (asked !== undefined) expect(inMs).toBeGreaterThanOrEqual(Math.min(asked, 2 * base))
        },
      ),
    )
  })

  it("reads Retry-After as seconds and as a date", () => {
    expect(retryAfterOf("120", 0)).toBe(120_000)
    expect(retryAfterOf(new Date(5_000).toUTCString(), 2_000)).toBe(3_000)
    expect(retryAfterOf(new Date(1_000).toUTCString(), 2_000)).toBe(0)
    for (const nonsense of [undefined, "", "soon", "-1", "1.5.2", "9".repeat(20)])
      expect(retryAfterOf(nonsense, 0)).toBeUndefined()
  })
})

describe("urlFault", () => {
  const live = { httpsOnly: true, allows: addressRule([]) }

  it.each([
    "https://shop.example/hooks?a=b",
    "https://shop.example:8443/",
    "https://8.8.8.8/",
    "https://[2606:4700:4700::1111]/x",
    "HTTPS://Shop.Example",
  ])("takes %s", url => {
    expect(urlFault(url, live)).toBeUndefined()
  })

  it.each([
    ["http://shop.example/", /https/],
    ["ftp://shop.example/", /https address/],
    ["javascript:alert(1)", /https address/],
    ["shop.example", /https address/],
    ["https://", /https address/],
    ["https://shop.example/a b", /https address/],
    ["https://shop.example\\@10.0.0.1/", /https address/],
    [" https://shop.example/", /https address/],
    ["https://shop.example/\n", /https address/],
    ["https://user@shop.example/", /user name/],
    ["https://:pass@shop.example/", /password/],
    ["https://shop.example/#part", /fragment/],
    ["https://shop.example/#", /fragment/],
  ])("refuses %j", (url, words) => {
    expect(urlFault(url, live)).toMatch(words)
  })
})
