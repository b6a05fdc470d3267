// The merchant's own JSON: what is stored, served and signed is the number that was sent, or it was refused.
import fc from "fast-check"
import { afterAll, beforeAll, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { noticeOf } from "../../ledger/settlement/checkout-notice.ts"
import { notifyCheckout } from "../../ledger/settlement/notify-checkout.ts"
import { inTransaction } from "../../platform/context.ts"

let service: TestService
let origin: string
let headers: Record<string, string>
beforeAll(async () => {
  service = await startService()
  origin = await service.listen()
  await service.merchant("shop")
  headers = { "content-type": "application/json", authorization: `Bearer ${await service.issuer.token("shop")}` }
})
afterAll(() => service?.stop())

/** A request whose body and answer are read as text, as a JSON parser would change them. */
async function send(method: string, path: string, body?: string): Promise<{ status: number; text: string }> {
  const response = await fetch(`${origin}${path}`, { method, headers, ...(body === undefined ? {} : { body }) })
  return { status: response.status, text: await response.text() }
}

/** A decimal number as whole digits and a power of ten, exactly. */
function exact(written: string): { digits: bigint; exponent: number } {
  const [mantissa = "", exponent = "0"] = written.toLowerCase().split("e")
  const [whole = "", fraction = ""] = mantissa.split(".")
  return { digits: BigInt(`${whole}${fraction}`), exponent: Number.parseInt(exponent, 10) - fraction.length }
}
function isSame(a: string, b: string): boolean {
  const first = exact(a)
  const second = exact(b)
  const lowest = Math.min(first.exponent, second.exponent)
  const scaled = ({ digits, exponent }: typeof first) => digits * 10n ** BigInt(exponent - lowest)
  return scaled(first) === scaled(second)
}

const digits = (least: number, most: number) =>
  fc.array(fc.integer({ min: 0, max: 9 }), { minLength: least, maxLength: most }).map(each => each.join(""))
/** Numbers as any language may write them. */
const number = fc
  .tuple(
    fc.constantFrom("", "-"),
    digits(1, 24).map(text => text.replace(/^0+(?=.)/, "")),
    fc.oneof(
      fc.constant(""),
      digits(1, 24).map(text => `.${text}`),
    ),
    fc.oneof(
      { weight: 3, arbitrary: fc.constant("") },
      fc.integer({ min: -330, max: 310 }).map(exponent => `e${exponent}`),
    ),
  )
  .map(parts => parts.join(""))
const examples = [
  "8209829119461545081",
  "9007199254740993",
  "9007199254740992",
  "19.900000000000000001",
  "19.90",
  "-0",
  "0.1",
  "1e400",
  "1e-400",
  "5e-324",
  "1e21",
  "123456789012345680000",
]

it("keeps, serves and signs each number that it takes, and refuses the others by their path", async () => {
  const { ctx } = service
  let taken = 0
  const property = fc.asyncProperty(number, async written => {
    const free = `{"a":[{"order":${written}}]}`
    const found = (text: string) => /"order":\s*(-?[0-9.eE+-]+)/.exec(text)?.[1] ?? text
    const checkout = await send("POST", "/api/console/checkouts", `{"amount":"5","metadata":${free}}`)
    const paywall = await send("POST", "/api/console/paywalls", `{"name":"a","price":"5","contentData":${free}}`)
    expect(paywall.status).toBe(checkout.status)
    if (checkout.status !== 201) {
      for (const [{ status, text }, path] of [
        [checkout, "metadata.a.0.order"],
        [paywall, "contentData.a.0.order"],
      ] as const) {
        expect(status, text).toBe(400)
        expect(JSON.parse(text)).toMatchObject({ error: "VALIDATION_ERROR", details: [{ path }] })
      }
      return
    }
    taken++
    const { id } = JSON.parse(checkout.text)
    const shown = await send("GET", `/api/console/checkouts/${id}`)
    const sold = await send("GET", `/api/console/paywalls/${JSON.parse(paywall.text).id}`)
    const session = await ctx.db
      .selectFrom("checkout_sessions")
      .selectAll()
      .where("id", "=", id)
      .executeTakeFirstOrThrow()
    await inTransaction(ctx, ctx =>
      notifyCheckout(ctx, paperNetwork, "expired", {
        ...noticeOf(session),
        amountReceived: 0n,
        status: "expired",
        exception: null,
        txHash: null,
        payer: null,
        confirmedAt: null,
        splits: null,
      }),
    )
    const event = await ctx.db
      .selectFrom("events")
      .select("body")
      .where("dedupe_key", "=", `checkout.expired:${id}`)
      .executeTakeFirstOrThrow()
    for (const text of [checkout.text, shown.text, sold.text, event.body])
      expect(isSame(found(text), written), `${written} became ${found(text)}`).toBe(true)
  })
  await fc.assert(property, { numRuns: 100, examples: examples.map(each => [each]) })
  expect(taken).toBeGreaterThan(10)
})
