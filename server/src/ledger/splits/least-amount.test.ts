// The service pays for a transfer to each recipient of a split. So everything for sale costs at least MIN_AMOUNT for
// each recipient, however its price and its split were set.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { recipient } from "../../../test/payouts.ts"
import { startService, type TestService } from "../../../test/service.ts"

let service: TestService
/** Splits of the shop, of two and of fifty recipients. */
let two: string
let fifty: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  two = (await made("splits", { name: "Two", recipients: parts(2) })).id
  fifty = (await made("splits", { name: "Fifty", recipients: parts(50) })).id
})

const parts = (n: number) => Array.from({ length: n }, (_, i) => ({ address: recipient(i), percent: 100 / n }))
const call = (method: "POST" | "PUT" | "GET", url: string, body?: object) =>
  service.call(method, url, body, { as: "shop" })
const under = (path: string) => `/api/console/${path}`
async function made(path: string, body: object) {
  const answer = await call("POST", under(path), body)
  expect(answer.status, JSON.stringify(answer.body)).toBe(201)
  return answer.body
}
const refusal = async (answer: ReturnType<typeof call>) => {
  const { status, body } = await answer
  return [status, body.error, body.details?.[0]?.path]
}
const link = (more: object) => ({ slug: `l-${Math.random().toString(36).slice(2)}`, title: "L", ...more })

describe("what is made", () => {
  it.each([
    ["paywalls", "price", (more: object) => ({ name: "a", ...more })],
    ["products", "price", (more: object) => ({ name: "a", ...more })],
    ["payment-links", "amount", link],
    ["checkouts", "amount", (more: object) => more],
  ])("as %s costs at least the minimum for each recipient", async (path, field, body) => {
    const refused = [400, "VALIDATION_ERROR", field]
    const attempt = (more: object) => refusal(call("POST", under(path), body(more)))
    expect(await attempt({ [field]: "0.009999" })).toEqual(refused)
    expect(await attempt({ [field]: "0.019999", splitId: two })).toEqual(refused)
    expect(await attempt({ [field]: "0.499999", splitId: fifty })).toEqual(refused)
    await made(path, body({ [field]: "0.01" }))
    await made(path, body({ [field]: "0.02", splitId: two }))
    await made(path, body({ [field]: "0.50", splitId: fifty }))
  })

  it("of a product has a price for its own split, whose checkouts and links can have another", async () => {
    const { id: productId } = await made("products", { name: "p", price: "0.02", splitId: two })
    const refused = [400, "VALIDATION_ERROR", "splitId"]
    expect(await refusal(call("POST", under("checkouts"), { productId, splitId: fifty }))).toEqual(refused)
    expect(await refusal(call("POST", under("payment-links"), link({ productId, splitId: fifty })))).toEqual(refused)
    await made("payment-links", link({ productId }))
  })

  it("by a payer, at a link that leaves the amount open, has the same minimum", async () => {
    const { slug } = await made("payment-links", link({ splitId: fifty }))
    const pay = (amount: string) => service.call("POST", "/api/pay/sessions", { slug, amount })
    expect(await refusal(pay("0.49"))).toEqual([400, "VALIDATION_ERROR", "amount"])
    expect((await pay("0.50")).status).toBe(201)
  })
})

describe("a split that is attached later", () => {
  it.each([
    ["paywalls", { name: "a", price: "0.02" }, "price"],
    ["products", { name: "a", price: "0.02" }, "price"],
    ["payment-links", link({ amount: "0.02" }), "splitId"],
  ])("to %s has no more recipients than the price is enough for", async (path, body, field) => {
    const { id } = await made(path, body)
    const attach = (splitId: string) => call("PUT", under(`${path}/${id}`), { splitId })
    expect(await refusal(attach(fifty))).toEqual([400, "VALIDATION_ERROR", field])
    expect((await call("GET", under(`${path}/${id}`))).body.splitId).toBe(null)
    expect((await attach(two)).status).toBe(200)
  })

  it("to a link that leaves the amount open may have any", async () => {
    const { id } = await made("payment-links", link({}))
    expect((await call("PUT", under(`payment-links/${id}`), { splitId: fifty })).status).toBe(200)
  })

  it("does not mention links to a merchant without one", async () => {
    expect(await refusal(call("PUT", under(`payment-links/plink_${"a".repeat(24)}`), { splitId: fifty }))).toEqual([
      404,
      "NOT_FOUND",
      undefined,
    ])
  })
})

describe("a price that is lowered later", () => {
  it.each(["paywalls", "products"])("of %s must be enough for the split", async path => {
    const { id } = await made(path, { name: "a", price: "0.50", splitId: fifty })
    const lower = (price: string) => call("PUT", under(`${path}/${id}`), { price })
    expect(await refusal(lower("0.49"))).toEqual([400, "VALIDATION_ERROR", "price"])
    expect((await lower("0.51")).status).toBe(200)
  })
})

describe("a split that gets more recipients", () => {
  it.each([
    ["paywalls", { name: "a", price: "0.02" }],
    ["products", { name: "a", price: "0.02" }],
    ["payment-links", link({ amount: "0.02" })],
  ])("is refused while %s cost too little for them", async (path, body) => {
    const { id } = await made(path, { ...body, splitId: two })
    const grow = (n: number) => call("PUT", under(`splits/${two}`), { recipients: parts(n) })
    const answer = await grow(4)
    expect(await refusal(Promise.resolve(answer))).toEqual([400, "INVALID_SPLIT", "recipients"])
    expect(answer.body.details[0].message).toContain(id)
    expect((await call("GET", under(`splits/${two}`))).body.recipients.length).toBe(2)
    await call("PUT", under(`${path}/${id}`), { splitId: null })
    expect((await grow(4)).status).toBe(200)
  })

  it("leaves existing sessions, and links without an amount, as they are", async () => {
    await made("checkouts", { amount: "0.02", splitId: two })
    await made("payment-links", link({ splitId: two }))
    expect((await call("PUT", under(`splits/${two}`), { recipients: parts(4) })).status).toBe(200)
  })
})
