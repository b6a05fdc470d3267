import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { flatValue } from "../../../test/flat-value.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { transactionsCsv } from "../../ledger/books/read-transactions.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"

let service: TestService
let key: string
let rivalKey: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  await service.merchant("rival")
  const keyOf = async (as: string) =>
    (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as })).body.key as string
  key = await keyOf("shop")
  rivalKey = await keyOf("rival")
})

const as = "shop"
const withKey = (value = key) => ({ headers: { "x-api-key": value } })
const create = (body: object, options: object = withKey()) => service.call("POST", "/api/checkouts", body, options)
const count = async (table: "checkout_sessions" | "deposits" | "products" | "payment_links") =>
  (await service.ctx.db.selectFrom(table).select("id").execute()).length
const pathsOf = (answer: { body: { details: { path: string }[] } }) => answer.body.details.map(each => each.path)

describe("POST /api/checkouts", () => {
  it("201: the session with everything, and a receiving address of its own", async () => {
    const asked = {
      amount: "19.90",
      currency: "USDC",
      chain: "base-sepolia",
      description: "Order 1001",
      redirectUrl: "https://shop.example/thanks",
      callbackUrl: "https://shop.example/hook",
      customerEmail: "ann@example.com",
      payerInfo: ["name", "vatId"],
      metadata: { order: 1001 },
      expiresIn: 3_600,
      capture: "direct",
    }
    const { status, body } = await create(asked)
    expect(status).toBe(201)
    const { payerInfo, expiresIn, ...same } = asked
    expect(body).toMatchObject({
      ...same,
      id: expect.stringMatching(/^cs_[a-z0-9]{24}$/),
      status: "pending",
      exception: null,
      amountReceived: "0.00",
      chainId: 84532,
      payerFields: payerInfo,
      payerInfo: null,
      txHash: null,
      payer: null,
      confirmedAt: null,
      url: `${service.ctx.settings.baseUrl}/pay/${body.id}`,
    })
    expect(Date.parse(body.expiresAt) - Date.parse(body.createdAt)).toBe(expiresIn * 1_000)
    const again = (await create({ amount: 5 })).body
    expect(again.payTo).not.toBe(body.payTo)
    expect(Date.parse(again.expiresAt) - Date.parse(again.createdAt)).toBe(86_400_000)
    expect((await service.call("GET", `/api/checkouts/${body.id}`, undefined, withKey())).body).toEqual(body)
    // Its address opens for recovery 30 days after the end.
    const deposit = await service.ctx.db.selectFrom("deposits").selectAll().orderBy("id").executeTakeFirstOrThrow()
    expect(Number(deposit.open_after_s)).toBe(Math.floor(Date.parse(body.expiresAt) / 1_000) + 30 * 86_400)
  })

  it("201 in the console too, and both lists are one", async () => {
    const { status, body } = await service.call("POST", "/api/console/checkouts", { amount: 5 }, { as })
    expect(status).toBe(201)
    const lists = [
      await service.call("GET", "/api/checkouts", undefined, withKey()),
      await service.call("GET", "/api/console/checkouts", undefined, { as }),
    ]
    for (const list of lists) expect(list.body).toMatchObject({ total: 1, data: [{ id: body.id }] })
    expect((await service.call("GET", "/api/checkouts?status=confirmed", undefined, withKey())).body.total).toBe(0)
    expect((await service.call("GET", "/api/checkouts?status=pending", undefined, withKey())).body.total).toBe(1)
  })

  it("201 once for one Idempotency-Key", async () => {
    const options = { headers: { "x-api-key": key, "idempotency-key": "order-1" } }
    const first = await create({ amount: 5 }, options)
    const second = await create({ amount: 5 }, options)
    expect(second.body).toEqual(first.body)
    expect(second.headers["idempotent-replayed"]).toBe("true")
    expect(await create({ amount: 6 }, options)).toMatchObject({ status: 422, body: { error: "IDEMPOTENCY_MISMATCH" } })
    expect(await count("checkout_sessions")).toBe(1)
  })

  it("201 once for one Idempotency-Key, whatever else changed since, and however many ask together", async () => {
    const link = { title: "Book", amount: "5", slug: "once-by-key" }
    const { body: made } = await service.call("POST", "/api/console/payment-links", link, { as })
    const keyed = (name: string) => ({ headers: { "x-api-key": key, "idempotency-key": name } })
    const body = { slug: link.slug, metadata: { order: "1", at: { b: 1, a: [null, "é"] } } }
    const all = await Promise.all(Array.from({ length: 5 }, () => create(body, keyed("together"))))
    const [first] = all
    for (const each of all) expect(each).toMatchObject({ status: 201, body: first?.body })
    expect((await service.call("GET", `/api/checkouts/${first?.body.id}`, undefined, withKey())).body).toEqual(
      first?.body,
    )
    expect(await count("checkout_sessions")).toBe(1)
    await service.call("DELETE", `/api/console/payment-links/${made.id}`, undefined, { as })
    expect(await create(body, keyed("together"))).toMatchObject({ status: 201, body: first?.body })
    // An error leaves the key free.
    expect((await create(body, keyed("refused"))).status).toBe(410)
    expect((await create({ amount: 5 }, keyed("refused"))).status).toBe(201)
    expect(await count("checkout_sessions")).toBe(2)
  })

  it("400: what can't be, all at once, and nothing is made", async () => {
    const bad: [object, string[]][] = [
      [{}, ["amount"]],
      [{ amount: 0 }, ["amount"]],
      [{ amount: "0.001" }, ["amount"]],
      [{ amount: "1.0000001" }, ["amount"]],
      [{ amount: 5, currency: "DAI" }, ["currency"]],
      [{ amount: 5, chain: "moon" }, ["chain"]],
      [{ amount: 5, redirectUrl: "ftp://x", metadata: 1 }, ["redirectUrl", "metadata"]],
      [{ amount: 5, redirectUrl: "https://x/\r\nSet-Cookie: a=b" }, ["redirectUrl"]],
      [{ amount: 5, redirectUrl: "https://", callbackUrl: "http://[" }, ["redirectUrl", "callbackUrl"]],
      [{ amount: 5, metadata: { text: "x".repeat(4_097) } }, ["metadata"]],
      [{ amount: 5, expiresIn: 299 }, ["expiresIn"]],
      [{ amount: 5, expiresIn: 2_592_001 }, ["expiresIn"]],
      // Neither an escrow nor a relay wallet.
      [{ amount: 5, capture: "manual" }, ["capture", "capture"]],
      [{ amount: 5, payerInfo: ["a", "a"] }, ["payerInfo"]],
      [{ amount: 5, payerFields: ["a"], payerInfo: ["a"] }, ["payerInfo"]],
      [{ amount: 5, customerEmail: "ann" }, ["customerEmail"]],
      [{ amount: 5, productId: `prod_${"a".repeat(24)}` }, ["productId"]],
      [{ slug: "nothing" }, ["slug"]],
      [{ slug: "nothing", productId: `prod_${"a".repeat(24)}` }, ["productId"]],
    ]
    for (const [body, paths] of bad) {
      const answer = await create(body)
      expect({ body, status: answer.status, paths: pathsOf(answer) }).toEqual({ body, status: 400, paths })
    }
    const typo = await create({ amount: 5, redirectURL: "https://x.example" })
    expect(typo.body.details[0].message).toContain("redirectUrl")
    expect(await count("checkout_sessions")).toBe(0)
    expect(await count("deposits")).toBe(0)
  })

  it("401 without a key, or with a token in its place", async () => {
    expect(await create({ amount: 5 }, {})).toMatchObject({ status: 401, body: { error: "UNAUTHORIZED" } })
    expect((await create({ amount: 5 }, { as })).status).toBe(401)
    expect((await create({ amount: 5 }, withKey(`sk_test_${"a".repeat(40)}`))).status).toBe(401)
  })

  it("409 without a payout address", async () => {
    const made = await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "newcomer" })
    const answer = await create({ amount: 5 }, withKey(made.body.key))
    expect(answer).toMatchObject({ status: 409, body: { error: "PAYOUT_ADDRESS_REQUIRED" } })
  })

  it("sells a product at its price, and a link as it says, at the price of that moment", async () => {
    const product = (await service.call("POST", "/api/console/products", { name: "Report", price: 49 }, { as })).body
    const session = (await create({ productId: product.id })).body
    expect(session).toMatchObject({ amount: "49.00", productId: product.id, description: "Report" })
    expect((await create({ productId: product.id, description: "For Ann" })).body.description).toBe("For Ann")
    expect(pathsOf(await create({ productId: product.id, amount: 1 }))).toEqual(["amount"])
    const link = {
      slug: "report",
      title: "Report of 2026",
      productId: product.id,
      redirectUrl: "https://shop.example/",
    }
    expect((await service.call("POST", "/api/console/payment-links", link, { as })).status).toBe(201)
    await service.call("PUT", `/api/console/products/${product.id}`, { price: 59 }, { as })
    expect((await create({ productId: product.id })).body.amount).toBe("59.00")
    expect((await create({ slug: "report" })).body).toMatchObject({
      amount: "49.00",
      redirectUrl: link.redirectUrl,
      description: "Report of 2026",
    })
    expect(pathsOf(await create({ slug: "report", amount: 2 }))).toEqual(["amount"])
    expect(pathsOf(await create({ slug: "report" }, withKey(rivalKey)))).toEqual(["slug"])
    await service.call("DELETE", `/api/console/products/${product.id}`, undefined, { as })
    expect(pathsOf(await create({ productId: product.id }))).toEqual(["productId"])
    const { data } = (await service.call("GET", "/api/console/payment-links", undefined, { as })).body
    await service.call("DELETE", `/api/console/payment-links/${data[0].id}`, undefined, { as })
    expect(await create({ slug: "report" })).toMatchObject({ status: 410, body: { error: "LINK_UNAVAILABLE" } })
  })
})

describe.each([
  ["products", { name: "Report", price: 49 }],
  ["payment-links", { slug: "gone", title: "Report", amount: 5 }],
  ["paywalls", { name: "Report", price: 5 }],
])("DELETE of one of the %s that is off already", (kind, body) => {
  it("is 200 and changes nothing, and of another merchant's 404", async () => {
    const { id } = (await service.call("POST", `/api/console/${kind}`, body, { as })).body
    const url = `/api/console/${kind}/${id}`
    const remove = (as: string) => service.call("DELETE", url, undefined, { as })
    const shown = async () => {
      const { updatedAt: _, ...rest } = (await service.call("GET", url, undefined, { as })).body
      return rest
    }
    expect((await remove("rival")).status).toBe(404)
    expect((await service.call("PUT", url, { active: false }, { as })).status).toBe(200)
    const before = await shown()
    for (let i = 0; i < 2; i++) expect(await remove(as)).toMatchObject({ status: 200, body: { deleted: true, id } })
    expect(await shown()).toEqual(before)
    expect((await remove("rival")).status).toBe(404)
  })
})

describe("/api/console/checkouts/:id", () => {
  it("changes words, not what was asked of the payer; 404 for anyone else's", async () => {
    const { id } = (await create({ amount: 5 })).body
    const path = `/api/console/checkouts/${id}`
    const change = { description: "Order 7", redirectUrl: "https://shop.example/", metadata: { a: 1 } }
    expect((await service.call("PUT", path, change, { as })).body).toMatchObject({ ...change, amount: "5.00" })
    const cleared = { description: null, redirectUrl: null, metadata: null }
    expect((await service.call("PUT", path, cleared, { as })).body).toMatchObject(cleared)
    expect((await service.call("PUT", path, { amount: 6 }, { as })).status).toBe(400)
    expect((await service.call("PUT", path, { metadata: { text: "x".repeat(4_097) } }, { as })).status).toBe(400)
    for (const [method, body] of [["GET"], ["PUT", change], ["DELETE"]] as const)
      expect(await service.call(method, path, body, { as: "rival" })).toMatchObject({
        status: 404,
        body: { error: "SESSION_NOT_FOUND" },
      })
    expect((await service.call("GET", `/api/checkouts/${id}`, undefined, withKey(rivalKey))).status).toBe(404)
  })

  it("is closed while nobody has begun to pay, and not after", async () => {
    const { id } = (await create({ amount: 5 })).body
    const path = `/api/console/checkouts/${id}`
    expect((await service.call("DELETE", path, undefined, { as })).body).toEqual({ deleted: true, id })
    expect(Date.parse((await service.call("GET", path, undefined, { as })).body.expiresAt)).toBeLessThanOrEqual(
      service.ctx.now().getTime(),
    )
    expect(await service.call("DELETE", path, undefined, { as })).toMatchObject({
      status: 404,
      body: { error: "SESSION_NOT_FOUND", message: expect.stringContaining("has ended") },
    })
    const other = (await create({ amount: 5 })).body
    await service.call("POST", "/api/pay/confirm", { sessionId: other.id, txHash: `0x${"1".repeat(64)}` })
    expect(await service.call("DELETE", `/api/console/checkouts/${other.id}`, undefined, { as })).toMatchObject({
      status: 409,
      body: { error: "INVALID_OPERATION" },
    })
  })
})

describe("/api/pay", () => {
  it("shows a payer what is needed, and nothing of the customer or the merchant's own", async () => {
    const asked = { amount: 5, customerEmail: "ann@example.com", metadata: { secret: 1 }, payerInfo: ["name"] }
    const { id, payTo } = (await create(asked)).body
    const { status, body } = await service.call("GET", `/api/pay/status/${id}`)
    expect(status).toBe(200)
    expect(body).toMatchObject({ sessionId: id, payTo, amount: "5.00", payerFields: ["name"], confirmations: 0 })
    expect(JSON.stringify(body)).not.toMatch(/ann@|secret|metadata|mail/)
    expect(await service.call("GET", "/api/pay/status/cs_unknown")).toMatchObject({
      status: 404,
      body: { error: "SESSION_NOT_FOUND" },
    })
  })

  it("keeps what the payer says with the hash, of the fields that were asked for", async () => {
    const { id } = (await create({ amount: 5, payerFields: ["name"] })).body
    const confirm = (more: object, sessionId = id) =>
      service.call("POST", "/api/pay/confirm", { sessionId, txHash: `0x${"1".repeat(64)}`, ...more })
    expect(pathsOf(await confirm({ payerInfo: { vatId: "1" } }))).toEqual(["payerInfo.vatId"])
    expect(pathsOf(await confirm({ payerAddress: "0x12" }))).toEqual(["payerAddress"])
    expect(await confirm({ txHash: "0x12" })).toMatchObject({ status: 400, body: { error: "INVALID_TX_HASH" } })
    expect(await confirm({}, "cs_unknown")).toMatchObject({ status: 404, body: { error: "SESSION_NOT_FOUND" } })
    expect((await service.call("GET", `/api/pay/status/${id}`)).body.status).toBe("pending")
    const said = { payerInfo: { name: "Ann" }, customerEmail: "ann@example.com" }
    expect((await confirm(said)).body).toEqual({ status: "verifying", sessionId: id, txHash: `0x${"1".repeat(64)}` })
    expect((await service.call("GET", `/api/checkouts/${id}`, undefined, withKey())).body).toMatchObject(said)
    expect((await confirm({})).status).toBe(200)
    expect((await service.call("GET", `/api/checkouts/${id}`, undefined, withKey())).body).toMatchObject(said)
  })

  it.each(["confirm", "payer-info"])("takes the e-mail address of %s's answers where it knows none", async path => {
    const answered = async (body: object, payerInfo: object, more: object = {}) => {
      const { id } = (await create({ amount: 5, payerFields: ["name", "eMail"], ...body })).body
      const hash = path === "confirm" ? { txHash: `0x${"1".repeat(64)}` } : {}
      const said = await service.call("POST", `/api/pay/${path}`, { sessionId: id, payerInfo, ...hash, ...more })
      expect(said.status).toBe(200)
      const session = await service.call("GET", `/api/checkouts/${id}`, undefined, withKey())
      expect(session.body.payerInfo).toEqual(payerInfo)
      return session.body.customerEmail
    }
    expect(await answered({}, { eMail: "ann@example.com" })).toBe("ann@example.com")
    expect(await answered({}, { eMail: "no address" })).toBeNull()
    expect(await answered({}, { eMail: `${"a".repeat(320)}@b.c` })).toBeNull()
    expect(await answered({}, { name: "ann@example.com" })).toBeNull()
    expect(await answered({}, { name: "Ann", eMail: " ann@example.com " })).toBe("ann@example.com")
    const known = { customerEmail: "shop@example.com" }
    expect(await answered(known, { eMail: "ann@example.com" })).toBe("shop@example.com")
    expect(await answered({}, { eMail: "ann@example.com" }, known)).toBe("shop@example.com")
  })

  it("takes the corrected answer for an e-mail address, but never for one that somebody gave as such", async () => {
    const answer = async (id: string, email: string, path = "payer-info", more: object = {}) => {
      const hash = path === "confirm" ? { txHash: `0x${"1".repeat(64)}` } : {}
      const said = { sessionId: id, payerInfo: { e_mail: "-", email }, ...hash, ...more }
      expect((await service.call("POST", `/api/pay/${path}`, said)).status).toBe(200)
      return (await service.call("GET", `/api/checkouts/${id}`, undefined, withKey())).body.customerEmail
    }
    const fields = { amount: 5, payerFields: ["e_mail", "email"] }
    const { id } = (await create(fields)).body
    expect(await answer(id, "ann@exmaple.com")).toBe("ann@exmaple.com")
    expect(await answer(id, "ann@example.com")).toBe("ann@example.com")
    expect(await answer(id, "none")).toBeNull()
    expect(await answer(id, "ann@example.com", "confirm")).toBe("ann@example.com")
    const confirmed = await service.call("POST", "/api/pay/confirm", { sessionId: id, txHash: `0x${"1".repeat(64)}` })
    expect(confirmed.status).toBe(200)
    expect((await service.call("GET", `/api/checkouts/${id}`, undefined, withKey())).body.customerEmail).toBe(
      "ann@example.com",
    )
    const other = (await create(fields)).body.id
    expect(await answer(other, "bob@exmaple.com")).toBe("bob@exmaple.com")
    expect(await answer(other, "bob@example.com", "confirm")).toBe("bob@example.com")
    const both = async (e_mail: string, email: string) => {
      const said = { sessionId: other, payerInfo: { e_mail, email } }
      expect((await service.call("POST", "/api/pay/payer-info", said)).status).toBe(200)
      return (await service.call("GET", `/api/checkouts/${other}`, undefined, withKey())).body.customerEmail
    }
    expect(await both("a@exmaple.com", "b@example.com")).toBe("a@exmaple.com")
    expect(await both("a@example.com", "b@example.com")).toBe("a@example.com")
    const given = (await create(fields)).body.id
    expect(await answer(given, "eve@example.com", "payer-info", { customerEmail: "c@example.com" })).toBe(
      "c@example.com",
    )
    for (const path of ["payer-info", "confirm"])
      expect(await answer(given, "mallory@example.com", path)).toBe("c@example.com")
  })

  it("looks at ten hashes of a session at a time", async () => {
    const { id } = (await create({ amount: 5 })).body
    const confirm = (n: number) =>
      service.call("POST", "/api/pay/confirm", { sessionId: id, txHash: `0x${n.toString(16).padStart(64, "0")}` })
    for (let n = 1; n <= 10; n++) expect((await confirm(n)).status).toBe(200)
    expect(await confirm(11)).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    expect((await confirm(3)).status).toBe(200)
  })
})

describe("/api/console/products and payment-links", () => {
  it("are made, listed, read, changed and switched off by their merchant alone", async () => {
    for (const [path, body, change] of [
      [
        "products",
        { name: "Report", price: "49.00", description: null },
        { name: "Book", price: "5.00", active: true },
      ],
      ["payment-links", { slug: "sale", title: "Sale", amount: "5.00", maxUses: 3 }, { title: "End", maxUses: null }],
    ] as const) {
      const url = `/api/console/${path}`
      const made = await service.call("POST", url, body, { as })
      expect(made).toMatchObject({ status: 201, body: { ...body, active: true } })
      const own = `${url}/${made.body.id}`
      expect((await service.call("GET", own, undefined, { as })).body).toEqual(made.body)
      expect((await service.call("GET", url, undefined, { as })).body).toEqual({ data: [made.body], total: 1 })
      expect((await service.call("GET", url, undefined, { as: "rival" })).body).toEqual({ data: [], total: 0 })
      expect((await service.call("PUT", own, change, { as })).body).toMatchObject(change)
      for (const [method, sent] of [["GET"], ["PUT", change], ["DELETE"]] as const)
        expect((await service.call(method, own, sent, { as: "rival" })).status).toBe(404)
      expect((await service.call("DELETE", own, undefined, { as })).body).toEqual({ deleted: true, id: made.body.id })
      expect((await service.call("GET", own, undefined, { as })).body.active).toBe(false)
    }
  })

  it("a link has an id of its kind, and a random slug where none is given; those of before keep theirs", async () => {
    const url = "/api/console/payment-links"
    const { body } = await service.call("POST", url, { title: "Sale", amount: 5 }, { as })
    expect(body).toMatchObject({
      id: expect.stringMatching(/^plink_[a-z0-9]{24}$/),
      slug: expect.stringMatching(/^[a-z0-9]{16}$/),
    })
    const old = { id: body.id.slice(1) }
    await service.ctx.db.updateTable("payment_links").set(old).execute()
    expect((await service.call("GET", `${url}/${old.id}`, undefined, { as })).body).toEqual({ ...body, ...old })
    expect((await create({ slug: body.slug })).status).toBe(201)
    expect((await service.call("DELETE", `${url}/${old.id}`, undefined, { as })).status).toBe(200)
  })

  it("a link asks its payers for its fields, unless the merchant's checkout asks for others", async () => {
    const url = "/api/console/payment-links"
    const payerFields = ["name", "shippingAddress"]
    const { body: link } = await service.call("POST", url, { title: "Mug", amount: 5, payerFields }, { as })
    expect(link).toMatchObject({ payerFields })
    const asked = async () => (await service.call("POST", "/api/pay/sessions", { slug: link.slug })).body.sessionId
    const first = await asked()
    const fieldsOf = async (id: string) => (await service.call("GET", `/api/pay/status/${id}`)).body.payerFields
    expect(await fieldsOf(first)).toEqual(payerFields)
    expect((await create({ slug: link.slug })).body).toMatchObject({ payerFields, payerInfo: null })
    expect((await create({ slug: link.slug, payerFields: ["vatId"] })).body.payerFields).toEqual(["vatId"])
    expect((await create({ slug: link.slug, payerFields: [] })).body.payerFields).toEqual([])
    const change = (body: object) => service.call("PUT", `${url}/${link.id}`, body, { as })
    expect((await change({ title: "Cup" })).body).toMatchObject({ title: "Cup", payerFields })
    expect((await change({ payerFields: [] })).body.payerFields).toEqual([])
    expect(await fieldsOf(await asked())).toEqual([])
    expect(await fieldsOf(first)).toEqual(payerFields)
    for (const bad of [["1a"], ["a", "a"], ["two words"], Array.from({ length: 21 }, (_, n) => `f${n}`), "name"])
      expect((await change({ payerFields: bad })).status, JSON.stringify(bad)).toBe(400)
    expect((await service.call("GET", `${url}/${link.id}`, undefined, { as })).body.payerFields).toEqual([])
  })

  it("refuse what can't be, and write nothing", async () => {
    const post = (path: string, body: object) => service.call("POST", `/api/console/${path}`, body, { as })
    expect(pathsOf(await post("products", { name: "a", price: "0.0001", chain: "base-sepolia" }))).toEqual(["price"])
    expect(pathsOf(await post("products", { name: "a", price: 5, chain: "moon" }))).toEqual(["chain"])
    const link = { slug: "sale", title: "Sale" }
    expect(pathsOf(await post("payment-links", { ...link, redirectUrl: "https://" }))).toEqual(["redirectUrl"])
    expect(pathsOf(await post("payment-links", { ...link, amount: "1.1234567" }))).toEqual(["amount"])
    expect(pathsOf(await post("payment-links", { ...link, expiresAt: "2026-02-30T00:00:00Z" }))).toEqual(["expiresAt"])
    expect(pathsOf(await post("payment-links", { ...link, expiresAt: "soon" }))).toEqual(["expiresAt"])
    expect(pathsOf(await post("payment-links", { ...link, productId: `prod_${"a".repeat(24)}` }))).toEqual([
      "productId",
    ])
    expect([await count("products"), await count("payment_links")]).toEqual([0, 0])
    const first = await post("payment-links", link)
    expect(first.status).toBe(201)
    expect(await post("payment-links", link)).toMatchObject({ status: 409, body: { error: "SLUG_TAKEN" } })
    await service.ctx.db.updateTable("payment_links").set({ uses: 3 }).execute()
    const own = `/api/console/payment-links/${first.body.id}`
    expect(pathsOf(await service.call("PUT", own, { maxUses: 2 }, { as }))).toEqual(["maxUses"])
    expect(pathsOf(await service.call("PUT", own, { redirectUrl: "https://" }, { as }))).toEqual(["redirectUrl"])
  })
})

describe("/api/console/transactions", () => {
  const hashOf = (n: number) => `0x${n.toString(16).padStart(64, "0")}` as Hash
  const payerOf = (n: number) => `0x${n.toString(16).padStart(40, "0")}` as Address
  const idOf = (who: string, n: number) => `pay_${who.padEnd(23, "0")}${n}`
  const at = (day: number) => new Date(Date.UTC(2026, 0, day, 12))

  /** Payments of checkouts as the settling writes them, one a day. */
  async function payments(days: number, who = "shop", keyOfWho = key): Promise<void> {
    const merchant_id = await service.merchant(who)
    for (let n = 1; n <= days; n++) {
      const session = (await create({ amount: 5 }, withKey(keyOfWho))).body
      const exceptional = n % 3 === 0
      const deposit = await service.ctx.db
        .selectFrom("deposits")
        .select("id")
        .where("resource_id", "=", session.id)
        .executeTakeFirstOrThrow()
      await service.ctx.db
        .insertInto("payments")
        .values({
          id: idOf(who, n),
          merchant_id,
          resource_id: session.id,
          chain_id: paperNetwork.chainId,
          payer: payerOf(n),
          amount: BigInt(n) * 1_000_000n,
          tx_hash: hashOf(n),
          token: paperNetwork.token.address,
          deposit_id: deposit.id,
          status: exceptional ? "open" : "granted",
          exception: exceptional ? "late" : null,
          created_at: at(n),
          updated_at: at(n),
        })
        .execute()
    }
  }
  const list = async (query = "", path = "transactions") =>
    (await service.call("GET", `/api/console/${path}?${query}`, undefined, { as })).body
  const idsOf = ({ data }: { data: { id: string }[] }) => data.map(each => Number.parseInt(each.id.slice(-1), 10))

  it("lists the merchant's own, newest first, and narrows them", async () => {
    await payments(6)
    await payments(2, "rival", rivalKey)
    const all = await list()
    expect([idsOf(all), all.total]).toEqual([[6, 5, 4, 3, 2, 1], 6])
    expect(all.data[5]).toMatchObject({ type: "payment", amount: "1.00", currency: "USDC", status: "granted" })
    expect(idsOf(await list("limit=2&offset=1"))).toEqual([5, 4])
    expect(idsOf(await list("status=open"))).toEqual([6, 3])
    expect(idsOf(await list("type=payment&from=2026-01-02&to=2026-01-04"))).toEqual([3, 2])
    expect(idsOf(await list("from=2026-01-05T12:00:00Z"))).toEqual([6, 5])
    expect(idsOf(await list(`q=${hashOf(4)}`))).toEqual([4])
    expect(idsOf(await list(`q=${payerOf(2)}`))).toEqual([2])
    expect(idsOf(await list(`q=${idOf("shop", 5)}`))).toEqual([5])
    expect(idsOf(await list(`q=${all.data[0].sessionId}`))).toEqual([6])
    expect((await list(`q=${idOf("rival", 1)}`)).total).toBe(0)
    expect((await list(`q=pw_${"a".repeat(24)}`)).total).toBe(0)
    expect(idsOf(await list("exception=late", "payments"))).toEqual([6, 3])
    expect(idsOf(await list("", "payments"))).toEqual([6, 3])
    expect((await list("exception=underpaid", "payments")).total).toBe(0)
    expect(idsOf(await list("exception=late"))).toEqual([6, 3])
    expect(idsOf(await list("exception=underpaid"))).toEqual([])
  })

  it("sums those that match, by state and token, but not more than 10,000", async () => {
    await payments(6)
    await payments(2, "rival", rivalKey)
    const sum = { type: "payment", currency: "USDC", currencyVerified: true, decimals: 6, chain: "base-sepolia" }
    const token = checksummed(paperNetwork.token.address)
    const of = (status: string, count: number, amount: string) => ({ ...sum, token, status, count, amount })
    const sums = (query: string) => list(query, "transactions/totals")
    expect(await sums("")).toEqual({ data: [of("granted", 4, "12.00"), of("open", 2, "9.00")], total: 6 })
    expect(await sums("exception=late")).toEqual({ data: [of("open", 2, "9.00")], total: 2 })
    expect(await sums("from=2026-01-02&to=2026-01-04&status=granted")).toEqual({
      data: [of("granted", 1, "2.00")],
      total: 1,
    })
    expect(await sums(`q=${payerOf(5)}`)).toEqual({ data: [of("granted", 1, "5.00")], total: 1 })
    expect(await sums("type=sweep")).toEqual({ data: [], total: 0 })
    expect(await sums("from=yesterday")).toMatchObject({ error: "VALIDATION_ERROR" })
    // Another token of a name that it gave itself has a sum of its own, and one that is unknown is in base units.
    const foreign = `0x${"ab".repeat(20)}` as Address
    await service.ctx.db.updateTable("payments").set({ token: foreign }).where("id", "=", idOf("shop", 1)).execute()
    expect((await sums("status=granted")).data).toEqual([
      of("granted", 3, "11.00"),
      expect.objectContaining({ currencyVerified: false, decimals: null, amount: "1000000", count: 1 }),
    ])
    await paywall()
    const addMany = (from: number, to: number) =>
      sql`insert into payments select (jsonb_populate_record(p, jsonb_build_object('id', 'pay_many' || n, 'resource_id', 'pw_${sql.raw("a".repeat(24))}'))).*
        from payments p, generate_series(${from}::int, ${to}::int) n where p.id = ${idOf("shop", 2)}`.execute(
        service.ctx.db,
      )
    await addMany(1, 9_994)
    expect((await sums("")).total).toBe(10_000)
    expect((await sums("")).data.at(0)).toMatchObject({ status: "granted", count: 9_997, amount: "19999.00" })
    await addMany(9_995, 9_995)
    expect(await sums("")).toEqual({ data: [], total: 10_000, totalIsLeast: true })
  })

  it("400 for times that don't exist", async () => {
    for (const query of ["from=yesterday", "to=2026-13-01", "from=2026-02-30T00:00:00Z"])
      for (const path of ["transactions", "transactions.csv"])
        expect((await service.call("GET", `/api/console/${path}?${query}`, undefined, { as })).status).toBe(400)
  })

  it("as CSV: all that passes the filter, over as many reads as it takes", async () => {
    await payments(3)
    const row = await service.ctx.db.selectFrom("payments").selectAll().executeTakeFirstOrThrow()
    const many = Array.from({ length: 2_500 }, (_, i) => ({
      ...row,
      id: `pay_many${String(i).padStart(4, "0")}`,
      resource_id: `pw_${"a".repeat(24)}`,
      // Several at the same instant, on both sides of the boundary between two reads.
      created_at: at(-Math.floor(i / 7)),
    }))
    await paywall()
    for (let i = 0; i < many.length; i += 500)
      await service.ctx.db
        .insertInto("payments")
        .values(many.slice(i, i + 500))
        .execute()
    const csv = await service.call("GET", "/api/console/transactions.csv", undefined, { as })
    expect(csv.headers["content-type"]).toBe("text/csv; charset=utf-8")
    const lines = (csv.body as string).split("\r\n")
    expect(lines[0]).toBe(
      "id,type,status,exception,amount,currency,chain,txHash,payer,recipient,paywallId,sessionId,paymentId,createdAt,token,decimals,currencyVerified,bundleId,value,valueCurrency,rate,rateSource,rateAt",
    )
    const ids = lines.slice(1, -1).map(line => line.split(",")[0])
    expect(ids.length).toBe(2_503)
    expect(new Set(ids).size).toBe(2_503)
    expect(lines[1]).toMatch(
      /^pay_shop0+3,payment,open,late,3.00,USDC,base-sepolia,0x0+3,0x0+3,,,cs_[a-z0-9]{24},pay_shop0+3,2026-01-03T/,
    )
    const narrowed = await service.call("GET", "/api/console/transactions.csv?status=open", undefined, { as })
    expect((narrowed.body as string).split("\r\n").length).toBe(3)
  })

  it("as CSV: cell by cell what the list has, in tokens of any decimals, known or not", async () => {
    const tokens = [
      {
        token: `0x${"ab".repeat(20)}`,
        symbol: "EURX",
        decimals: 18,
        amounts: [1n, 10n ** 18n, 123_450_000_000_000_000n],
      },
      { token: `0x${"cd".repeat(20)}`, symbol: null, decimals: 1, amounts: [7n, 70n] },
      { token: `0x${"ef".repeat(20)}`, symbol: null, decimals: null, amounts: [10n ** 60n] },
      { token: paperNetwork.token.address, symbol: null, decimals: null, amounts: [1n, 1_230_000n, 10n ** 20n] },
    ]
    const amounts = tokens.flatMap(({ amounts, token }) => amounts.map(amount => ({ amount, token: token as Address })))
    await payments(amounts.length)
    const { db } = service.ctx
    for (const [i, row] of amounts.entries())
      await db
        .updateTable("payments")
        .set(row)
        .where("id", "=", idOf("shop", i + 1))
        .execute()
    const calls = {
      name: "API",
      originUrl: "https://api.example",
      routes: [{ method: "GET", path: "/", price: "0.05" }],
    }
    const made = await service.call("POST", "/api/console/bundles", calls, { as })
    const bundle = { resource_id: made.body.id }
    await db.updateTable("payments").set(bundle).where("id", "=", idOf("shop", 1)).execute()
    const [, other] = tokens
    const known = tokens.filter(({ token }) => token !== paperNetwork.token.address)
    const reported = known.map(({ token, symbol, decimals }) => {
      return { chain_id: paperNetwork.chainId, address: token as Address, symbol, decimals, asked_at: new Date() }
    })
    await db.insertInto("tokens").values(reported).execute()
    await db
      .deleteFrom("tokens")
      .where("address", "=", other?.token as Address)
      .execute()
    const { data } = (await service.call("GET", "/api/console/transactions", undefined, { as })).body
    const csv = await service.call("GET", "/api/console/transactions.csv", undefined, { as })
    const [names = [], ...lines] = (csv.body as string)
      .trim()
      .split("\r\n")
      .map(line => line.split(","))
    const flat: Record<string, unknown>[] = data.map(flatValue)
    expect(lines).toEqual(flat.map(row => names.map(name => String(row[name] ?? ""))))
    expect(lines).toHaveLength(amounts.length)
    // What it was for is text of any length, which the file leaves out.
    expect([...names, "description"].toSorted()).toEqual(Object.keys(flat[0] ?? {}).toSorted())
    expect(new Set(data.map((row: { description: string | null }) => row.description))).toContain("API")
    expect(csv.body).toContain(bundle.resource_id)
  })

  it("as CSV: fails at a row of a network that is not served, instead of leaving it out", async () => {
    await payments(1)
    const elsewhere = { ...service.ctx, chain: { networks: [{ ...paperNetwork, chainId: 1 }] } }
    const parts = transactionsCsv(elsewhere, await service.merchant("shop"), {})
    expect((await parts.next()).value).toMatch(/^id,type,/)
    await expect(parts.next()).rejects.toThrow("NETWORKS does not name")
  })

  /** The paywall that all these rows refer to. */
  async function paywall(): Promise<void> {
    const { id } = (await service.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, { as })).body
    const row = await service.ctx.db.selectFrom("paywalls").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    await service.ctx.db
      .insertInto("paywalls")
      .values({ ...row, id: `pw_${"a".repeat(24)}`, content_data: null })
      .execute()
  }
})
