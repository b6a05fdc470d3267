import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const as = "shop"
const url = "/api/console/paywalls"
const create = (body: unknown, who = as) => service.call("POST", url, body, { as: who })
const rows = async () =>
  (await service.ctx.db.selectFrom("paywalls").selectAll().execute()).length +
  (await service.ctx.db.selectFrom("deposits").selectAll().execute()).length

describe("POST /api/console/paywalls", () => {
  it("201: the paywall with its defaults, in exactly the documented shape", async () => {
    const { status, body } = await create({ name: "Film", price: 5 })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.stringMatching(/^pw_[a-z0-9]{24}$/),
      merchantId: expect.stringMatching(/^mer_[a-z0-9]{24}$/),
      name: "Film",
      price: "5.00",
      currency: "USDC",
      description: null,
      contentType: "content",
      contentUrl: null,
      pricingModel: "one_time",
      slug: null,
      listed: false,
      splitId: null,
      subscriptionProductId: null,
      chain: "base-sepolia",
      accessDuration: null,
      active: true,
      createdAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
    })
  })

  it("201: everything that may be said is kept", async () => {
    const said = {
      name: "API",
      price: "0.1",
      currency: "USDC",
      description: "Calls",
      contentType: "api",
      contentData: { price: 0.1, nested: [{ deep: 1e21 }] },
      contentUrl: "https://example.com/a?b=c",
      pricingModel: "per_call",
      slug: "my-api",
      chain: "base-sepolia",
    }
    const { body } = await create(said)
    const whole = await service.call("GET", `${url}/${body.id}`, undefined, { as })
    expect(whole.body).toMatchObject({
      ...said,
      price: "0.10",
      accessDuration: 300,
      payTo: expect.stringMatching(/^0x[0-9a-fA-F]{40}$/),
    })
  })

  it("takes prices exactly as written", async () => {
    const written = ["0.01", "33.333333", "1000000", "0.1", "4.350000"]
    for (const price of written) {
      const number = await create(`{"name":"a","price":${price}}`)
      const text = await create({ name: "a", price })
      expect([number.body.price, text.body.price]).toEqual([text.body.price, number.body.price])
      expect(Number(number.body.price)).toBe(Number(price))
    }
  })

  it.each([
    ["no name", { price: 5 }, "name"],
    ["an empty name", { name: "", price: 5 }, "name"],
    ["a blank name", { name: " \t ", price: 5 }, "name"],
    ["a price with a zero before it", { name: "a", price: "05" }, "price"],
    ["a long name", { name: "x".repeat(201), price: 5 }, "name"],
    ["a name that is a number", { name: 5, price: 5 }, "name"],
    ["no price", { name: "a" }, "price"],
    ["a price of zero", { name: "a", price: 0 }, "price"],
    ["a negative price", { name: "a", price: -1 }, "price"],
    ["too many decimals", { name: "a", price: "0.0000001" }, "price"],
    ["too many decimals in a number", '{"name":"a","price":5.1234567}', "price"],
    ["an exponent", '{"name":"a","price":1e1}', "price"],
    ["too high a price", { name: "a", price: 1_000_001 }, "price"],
    ["too low a price", { name: "a", price: "0.009" }, "price"],
    ["a price that is no number", { name: "a", price: "five" }, "price"],
    ["a price that is null", { name: "a", price: null }, "price"],
    ["another currency", { name: "a", price: 5, currency: "EUR" }, "currency"],
    ["an unknown network", { name: "a", price: 5, chain: "solana" }, "chain"],
    ["an unknown field", { name: "a", price: 5, spiltId: "spl_1" }, "spiltId"],
    ["a field of a later version", { name: "a", price: 5, splitId: "spl_1" }, "splitId"],
    ["a bad slug", { name: "a", price: 5, slug: "No Spaces" }, "slug"],
    ["a short slug", { name: "a", price: 5, slug: "ab" }, "slug"],
    ["a URL that is none", { name: "a", price: 5, contentUrl: "ftp://example.com" }, "contentUrl"],
    ["a URL that can't be read", { name: "a", price: 5, contentUrl: "https://" }, "contentUrl"],
    ["content data that is a list", { name: "a", price: 5, contentData: [1] }, "contentData"],
    ["much content data", { name: "a", price: 5, contentData: { x: "y".repeat(65_536) } }, "contentData"],
    ["a duration of zero", { name: "a", price: 5, accessDuration: 0 }, "accessDuration"],
    ["a duration with a fraction", { name: "a", price: 5, accessDuration: 1.5 }, "accessDuration"],
    ["a description that is long", { name: "a", price: 5, description: "x".repeat(2_001) }, "description"],
    ["a content type with spaces", { name: "a", price: 5, contentType: "My Type" }, "contentType"],
    ["a list", [], ""],
    ["text", '"hello"', ""],
    ["broken JSON", '{"name":', ""],
    ["a NUL character", '{"name":"a\\u0000","price":5}', "name"],
    ["half a surrogate pair", '{"name":"\\ud800","price":5}', "name"],
  ])("400 for %s, naming it, and nothing is written", async (_what, body, path) => {
    const before = await rows()
    const answer = await create(body)
    expect(answer.body).toMatchObject({
      error: "VALIDATION_ERROR",
      requestId: expect.any(String),
      message: expect.any(String),
    })
    expect(answer.status).toBe(400)
    expect(answer.body.details.map((detail: { path: string }) => detail.path)).toContain(path)
    for (const detail of answer.body.details) expect(detail.message).not.toBe("")
    expect(await rows()).toBe(before)
  })

  it("reports all faults at once", async () => {
    const { body } = await create({ name: "", price: -1, contentType: "A B", more: 1 })
    expect(new Set(body.details.map((detail: { path: string }) => detail.path))).toEqual(
      new Set(["name", "price", "contentType", "more"]),
    )
  })

  it("409 without a payout address, in words that say what to do", async () => {
    const { status, body } = await create({ name: "a", price: 5 }, "newcomer")
    expect({ status, error: body.error }).toEqual({ status: 409, error: "PAYOUT_ADDRESS_REQUIRED" })
    expect(body.message).toContain("PUT /api/console/settings")
    expect(await rows()).toBe(0)
  })

  it("409 for a slug that a payment link has, and the other way round; it is free once it is given up", async () => {
    const link = { slug: "shared", title: "Link" }
    const addLink = () => service.call("POST", "/api/console/payment-links", link, { as })
    const { body } = await create({ name: "a", price: 5, slug: "shared" })
    const taken = { status: 409, body: { error: "SLUG_TAKEN" } }
    expect(await addLink()).toMatchObject(taken)
    await service.call("PUT", `${url}/${body.id}`, { slug: "other" }, { as })
    expect((await addLink()).status).toBe(201)
    const before = await rows()
    expect(await create({ name: "b", price: 5, slug: "shared" })).toMatchObject(taken)
    expect(await service.call("PUT", `${url}/${body.id}`, { slug: "shared" }, { as })).toMatchObject(taken)
    expect(await rows()).toBe(before)
  })

  it("409 for a slug that another merchant gave up, for 90 days, of a paywall and of a link", async () => {
    await service.merchant("rival")
    const link = (by: string) =>
      service.call("POST", "/api/console/payment-links", { slug: "known", title: "A" }, { as: by })
    const { body } = await create({ name: "a", price: 5, slug: "known" })
    expect((await service.call("PUT", `${url}/${body.id}`, { slug: "renamed" }, { as })).status).toBe(200)
    const taken = { status: 409, body: { error: "SLUG_TAKEN" } }
    expect(await create({ name: "b", price: 5, slug: "known" }, "rival")).toMatchObject(taken)
    expect(await link("rival")).toMatchObject(taken)
    service.advance(91 * 86_400_000)
    expect((await link("rival")).status).toBe(201)
    // Though nobody held it any more.
    expect(await create({ name: "c", price: 5, slug: "known" })).toMatchObject(taken)
  })

  it("a slug that a merchant gave up is its own again at once", async () => {
    const { body } = await create({ name: "a", price: 5, slug: "known" })
    await service.call("PUT", `${url}/${body.id}`, { slug: null }, { as })
    expect((await create({ name: "b", price: 5, slug: "known" })).status).toBe(201)
  })

  it("409 for a slug that anyone has, and nothing is written", async () => {
    await service.merchant("rival")
    await create({ name: "a", price: 5, slug: "taken" }, "rival")
    const before = await rows()
    expect(await create({ name: "b", price: 5, slug: "taken" })).toMatchObject({
      status: 409,
      body: { error: "SLUG_TAKEN" },
    })
    expect(await rows()).toBe(before)
  })

  it("gives each paywall a receiving address of its own", async () => {
    const ids = [(await create({ name: "a", price: 5 })).body.id, (await create({ name: "a", price: 5 })).body.id]
    const payTo = await Promise.all(ids.map(async id => (await service.call("GET", `/api/paywalls/${id}`)).body.payTo))
    expect(new Set(payTo).size).toBe(2)
  })
})

describe("GET /api/console/paywalls", () => {
  it("200: the merchant's own, newest first, inactive ones too, in exactly the documented shape", async () => {
    await service.merchant("rival")
    await create({ name: "theirs", price: 1 }, "rival")
    const first = (await create({ name: "first", price: 1 })).body
    service.advance(1_000)
    const second = (await create({ name: "second", price: "2.5" })).body
    await service.call("DELETE", `${url}/${first.id}`, undefined, { as })
    const { status, body } = await service.call("GET", url, undefined, { as })
    expect(status).toBe(200)
    const shape = (paywall: Record<string, unknown>, active: boolean) => ({
      id: paywall.id,
      name: paywall.name,
      price: paywall.price,
      currency: "USDC",
      contentType: "content",
      pricingModel: "one_time",
      active,
      createdAt: paywall.createdAt,
    })
    expect(body).toEqual({ paywalls: [shape(second, true), shape(first, false)], total: 2 })
  })

  it("200: pages by limit and offset, with the total", async () => {
    for (let i = 0; i < 5; i++) await create({ name: `${i}`, price: 1 })
    const pages = await Promise.all(
      [0, 2, 4, 6].map(
        async offset => (await service.call("GET", `${url}?limit=2&offset=${offset}`, undefined, { as })).body,
      ),
    )
    expect(pages.map(page => [page.paywalls.length, page.total])).toEqual([
      [2, 5],
      [2, 5],
      [1, 5],
      [0, 5],
    ])
    expect(new Set(pages.flatMap(page => page.paywalls.map((paywall: { id: string }) => paywall.id))).size).toBe(5)
  })

  it.each([
    "limit=0",
    "limit=-1",
    "limit=1001",
    "limit=x",
    "offset=-1",
    "offset=1.5",
    "limit=1e400",
    "offset=99999999999",
  ])("400 for ?%s", async query => {
    const { status, body } = await service.call("GET", `${url}?${query}`, undefined, { as })
    expect({ status, error: body.error }).toEqual({ status: 400, error: "VALIDATION_ERROR" })
  })

  it("ignores query names it does not know", async () => {
    expect((await service.call("GET", `${url}?utm_source=x`, undefined, { as })).status).toBe(200)
  })
})

describe("PUT /api/console/paywalls/:id", () => {
  it("200: changes only what is given, and answers all that can be given", async () => {
    const { body: made } = await create({ name: "a", price: 5, description: "kept", slug: "kept-slug" })
    service.advance(5_000)
    const { status, body } = await service.call("PUT", `${url}/${made.id}`, { price: "7.5" }, { as })
    expect(status).toBe(200)
    expect(body).toEqual({ ...made, price: "7.50", updatedAt: expect.any(String) })
    expect(new Date(body.updatedAt).getTime()).toBeGreaterThan(new Date(made.createdAt).getTime())
    const whole = (await service.call("GET", `${url}/${made.id}`, undefined, { as })).body
    expect(whole).toMatchObject({ name: "a", price: "7.50", description: "kept", slug: "kept-slug", active: true })
  })

  it("200: null clears what is optional; `active` switches both ways", async () => {
    const { body: made } = await create({
      name: "a",
      price: 5,
      description: "d",
      contentUrl: "https://a.b/",
      contentData: { a: 1 },
      slug: "abc",
    })
    const cleared = { description: null, contentUrl: null, contentData: null, slug: null }
    for (const active of [false, true]) {
      await service.call("PUT", `${url}/${made.id}`, { ...cleared, active }, { as })
      expect((await service.call("GET", `${url}/${made.id}`, undefined, { as })).body).toMatchObject({
        ...cleared,
        active,
      })
    }
  })

  it("200: a new pricing model brings its default duration, unless the merchant had set one", async () => {
    const durationAfter = async (fields: object, change: object) => {
      const { body } = await create({ name: "a", price: 5, ...fields })
      await service.call("PUT", `${url}/${body.id}`, change, { as })
      return (await service.call("GET", `${url}/${body.id}`, undefined, { as })).body.accessDuration
    }
    expect(await durationAfter({}, { pricingModel: "per_call" })).toBe(300)
    expect(await durationAfter({ accessDuration: 60 }, { pricingModel: "per_call" })).toBe(60)
    expect(await durationAfter({ pricingModel: "per_call" }, { accessDuration: null })).toBe(null)
    expect(await durationAfter({ pricingModel: "per_call" }, { name: "b" })).toBe(300)
  })

  it.each([
    ["currency", { currency: "USDC" }],
    ["contentType", { contentType: "api" }],
    ["chain", { chain: "base-sepolia" }],
    ["name", { name: null }],
    ["price", { price: "0" }],
    ["active", { active: "true" }],
  ])("400 for a %s that can't be changed so, and nothing is", async (path, change) => {
    const { body: made } = await create({ name: "a", price: 5 })
    const { status, body } = await service.call("PUT", `${url}/${made.id}`, change, { as })
    expect({ status, error: body.error }).toEqual({ status: 400, error: "VALIDATION_ERROR" })
    expect(body.details[0].path).toBe(path)
    expect((await service.call("GET", `${url}/${made.id}`, undefined, { as })).body.updatedAt).toBe(made.createdAt)
  })

  it("409 for a slug that is taken", async () => {
    await create({ name: "a", price: 5, slug: "taken" })
    const { body } = await create({ name: "b", price: 5 })
    expect(await service.call("PUT", `${url}/${body.id}`, { slug: "taken" }, { as })).toMatchObject({
      status: 409,
      body: { error: "SLUG_TAKEN" },
    })
  })
})

describe("DELETE /api/console/paywalls/:id", () => {
  it("200 each time: the paywall is only switched off", async () => {
    const { body: made } = await create({ name: "a", price: 5 })
    for (let i = 0; i < 2; i++)
      expect(await service.call("DELETE", `${url}/${made.id}`, undefined, { as })).toMatchObject({
        status: 200,
        body: { deleted: true, id: made.id },
      })
    expect((await service.call("GET", `/api/paywalls/${made.id}`)).body).toMatchObject({ active: false })
  })
})

describe("whoever is not the owner", () => {
  it("404 everywhere for another merchant's paywall, as if it did not exist", async () => {
    const { body: made } = await create({ name: "a", price: 5 })
    await service.merchant("rival")
    const paths: [Parameters<TestService["call"]>[0], string, unknown][] = [
      ["GET", `${url}/${made.id}`, undefined],
      ["PUT", `${url}/${made.id}`, { name: "stolen" }],
      ["DELETE", `${url}/${made.id}`, undefined],
      ["GET", `${url}/${made.id}/grants`, undefined],
      ["DELETE", `${url}/${made.id}/grants/grant_x`, undefined],
    ]
    for (const [method, path, body] of paths) {
      const answer = await service.call(method, path, body, { as: "rival" })
      const unknown = await service.call(method, path.replace(made.id, `pw_${"a".repeat(24)}`), body, { as: "rival" })
      expect(answer).toMatchObject({ status: 404, body: { error: "PAYWALL_NOT_FOUND" } })
      expect({ ...unknown.body, requestId: "" }).toEqual({ ...answer.body, requestId: "" })
    }
    expect((await service.call("GET", `${url}/${made.id}`, undefined, { as })).body).toMatchObject({
      name: "a",
      active: true,
    })
  })
})
