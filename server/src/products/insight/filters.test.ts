// The filters of checkouts, transactions, what is sold, and events; each against the rows that it must find, and against what it can't read.
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"

let rig: PayoutRig
/** The checkouts by what distinguishes them. */
const made: Record<string, string> = {}
let productId: string
const as = { as: "shop" }
const call = async (method: "GET" | "POST" | "PUT", path: string, body?: object) =>
  await rig.service.call(method, `/api/console/${path}`, body, as)

beforeAll(async () => {
  rig = await startPayoutRig()
  await lifeOf(rig).begin()
  const make = async (name: string, body: object) => {
    const { status, body: session } = await call("POST", "checkouts", body)
    expect(status, JSON.stringify(session)).toBe(201)
    made[name] = session.id
    rig.service.advance(1_000)
  }
  productId = (await call("POST", "products", { name: "Report", price: "12" })).body.id
  await call("POST", "products", { name: "Retired", price: "1" })
  await call("POST", "payment-links", { slug: "donate", title: "Donate", amount: "5" })
  await make("plain", { amount: "5" })
  await make("product", { productId })
  await make("link", { slug: "donate" })
  await make("email", { amount: "5", customerEmail: "ada@shop.example" })
  await make("order", { amount: "5", metadata: { order: 1001, plan: "pro" } })
  await make("later", { amount: "5", metadata: { order: 1002, plan: "pro" } })
})
afterAll(() => rig.stop())

async function found(query: string, list = "checkouts"): Promise<string[]> {
  const { status, body } = await call("GET", `${list}?${query}`)
  expect(status, JSON.stringify(body)).toBe(200)
  expect(body.total).toBe(body.data.length)
  return body.data.map(({ id }: { id: string }) => Object.keys(made).find(name => made[name] === id) ?? id)
}

describe("checkouts", () => {
  const all = ["later", "order", "email", "link", "product", "plain"]
  it.each([
    ["slug=donate", ["link"]],
    ["slug=nothing", []],
    ["customerEmail=ADA@shop.example", ["email"]],
    ["chain=base-sepolia", all],
    ["capture=direct", all],
    ["capture=manual", []],
    ["metadata[order]=1001", ["order"]],
    ["metadata[plan]=PRO", ["later", "order"]],
    ["metadata[plan]=pro&metadata[order]=1002", ["later"]],
    ["metadata[plan]=pro&status=confirmed", []],
    ["metadata[plan]=1001", []],
    ["q=order:1001", ["order"]],
    ["q=1002", ["later"]],
    ["q=ada@shop.example", ["email"]],
    [`q=0x${"5f".repeat(32)}`, []],
    [`q=pay_${"a".repeat(24)}`, []],
  ])("%s", async (query, names) => {
    expect(await found(query)).toEqual(names)
  })

  it("of a product, by an id, by their address and by the time at which they were made", async () => {
    expect(await found(`productId=${productId}`)).toEqual(["product"])
    expect(await found(`q=${made.email}`)).toEqual(["email"])
    const { body } = await call("GET", `checkouts/${made.link}`)
    expect(await found(`q=${body.payTo}`)).toEqual(["link"])
    expect(await found(`from=${body.createdAt}`)).toEqual(["later", "order", "email", "link"])
    expect(await found(`to=${body.createdAt}`)).toEqual(["product", "plain"])
    expect(await found(`from=${body.createdAt}&metadata[plan]=pro`)).toEqual(["later", "order"])
    expect(await found(`to=${body.createdAt}&metadata[plan]=pro`)).toEqual([])
  })

  it("page by page, where a field decides the order", async () => {
    const first = (await call("GET", "checkouts?metadata[plan]=pro&limit=1")).body
    expect(first.data.map(({ id }: { id: string }) => id)).toEqual([made.later])
    const second = (await call("GET", `checkouts?metadata[plan]=pro&limit=1&after=${first.next}`)).body
    expect(second.data.map(({ id }: { id: string }) => id)).toEqual([made.order])
    expect(second.next).toBeUndefined()
  })

  it("for a server, by its key, in the same words", async () => {
    const { body } = await call("POST", "api-keys", { name: "server" })
    const headers = { "x-api-key": body.key }
    const answer = await rig.service.call("GET", "/api/checkouts?metadata[order]=1001", undefined, { headers })
    expect(answer.body.data.map(({ id }: { id: string }) => id)).toEqual([made.order])
  })

  it("as a file of all that match", async () => {
    const { body } = await call("GET", "checkouts.csv?metadata[plan]=pro")
    const [names, ...lines] = (body as string).trim().split("\r\n")
    expect(names?.split(",").slice(0, 3)).toEqual(["id", "status", "exception"])
    expect(lines.map(line => line.split(",")[0])).toEqual([made.later, made.order])
    expect(lines[1]).toContain('"{""plan"":""pro"",""order"":1001}"')
    expect(((await call("GET", "checkouts.csv")).body as string).trim().split("\r\n")).toHaveLength(7)
  })

  it.each([
    "metadata=5",
    "metadata[]=5",
    "metadata[a]=",
    "metadata[a]=1&metadata[a]=2",
    [1, 2, 3, 4, 5, 6].map(n => `metadata[a${n}]=1`).join("&"),
    "productId=prod_x",
    "slug=X",
    "chain=nowhere",
    "capture=later",
    "customerEmail=ada",
    "from=2026-02-30",
    "q=",
  ])("refuses %s", async query => {
    for (const list of [
      "checkouts",
      "checkouts.csv",
      ...(query.startsWith("q") ? [] : ["transactions", "transactions.csv", "transactions/totals"]),
    ])
      expect((await call("GET", `${list}?${query}`)).status, list).toBe(400)
  })
})

describe("transactions", () => {
  it("of checkouts that match, and of a network", async () => {
    const { db } = rig.service.ctx
    const paidFor = `pay_${"p".repeat(24)}`
    const shop = await rig.sell()
    const paid = await rig.paid(shop, 700_000n)
    // As if the checkout had been paid: another payment, which is for it.
    await sql`insert into payments select (jsonb_populate_record(p, ${JSON.stringify({ id: paidFor, resource_id: made.order })}::jsonb)).*
      from payments p where id = ${paid}`.execute(db)
    for (const table of ["grants", "claims"] as const) await db.deleteFrom(table).execute()
    await db.deleteFrom("payments").where("id", "=", paid).execute()
    for (const query of [
      "metadata[order]=1001",
      "metadata[order]=1001&metadata[plan]=PRO",
      "metadata[plan]=pro&capture=direct&status=granted",
      "chain=base-sepolia",
      "capture=direct",
    ])
      expect(await found(query, "transactions"), query).toEqual([paidFor])
    for (const query of [
      "metadata[order]=1002",
      `productId=${productId}`,
      "slug=donate",
      "customerEmail=ada@shop.example",
      "capture=manual",
    ])
      expect(await found(query, "transactions"), query).toEqual([])
    const { body } = await call("GET", "transactions.csv?metadata[order]=1001")
    expect((body as string).trim().split("\r\n")).toHaveLength(2)

    await call("PUT", `checkouts/${made.order}`, { metadata: { order: 7 } })
    expect(await found("metadata[order]=1001", "transactions")).toEqual([])
    expect(await found("metadata[order]=7", "transactions")).toEqual([paidFor])
    // All that the triggers keep, against what the checkouts say.
    const wrong = await sql`
      (select p.merchant_id, t, p.created_at, p.id from payments p join checkout_sessions s on s.id = p.resource_id, terms_of_checkout(s) t
       except select * from transaction_terms)
      union all (select * from transaction_terms
       except select p.merchant_id, t, p.created_at, p.id from payments p join checkout_sessions s on s.id = p.resource_id, terms_of_checkout(s) t)`.execute(
      db,
    )
    expect(wrong.rows).toEqual([])
    await db.deleteFrom("payments").where("id", "=", paidFor).execute()
    expect(await db.selectFrom("transaction_terms").selectAll().execute()).toEqual([])
  })

  it("refuses filters together of which each matches too many", async () => {
    const { db } = rig.service.ctx
    const merchantId = await rig.service.merchant("shop")
    await sql`insert into transaction_terms select ${merchantId}, t, now() - n * interval '1 second', 'pay_x' || n
      from generate_series(1, 2001) n, unnest(array[md5('capture:manual')::uuid, field_term('plan', 'many')]) t`.execute(
      db,
    )
    const ask = (query: string) => call("GET", `transactions?${query}`)
    const { status, body } = await ask("capture=manual&metadata[plan]=many")
    expect([status, body.error]).toEqual([400, "VALIDATION_ERROR"])
    for (const query of [
      "capture=manual",
      "metadata[plan]=many",
      "capture=manual&metadata[plan]=many&metadata[order]=9",
    ])
      expect((await ask(query)).body.data, query).toEqual([])
    await db.deleteFrom("transaction_terms").execute()
  })
})

describe("what is sold", () => {
  it("by the beginning of its name, its slug, its id, and whether it is on", async () => {
    const names = async (list: string, query: string) => {
      const { status, body } = await call("GET", `${list}?${query}`)
      expect(status).toBe(200)
      return (body.data ?? body.paywalls).map(({ name, title }: Record<string, string>) => name ?? title)
    }
    expect(await names("products", "q=re")).toEqual(["Retired", "Report"])
    expect(await names("products", "q=REPO")).toEqual(["Report"])
    expect(await names("products", `q=${productId}`)).toEqual(["Report"])
    const { body } = await call("GET", "products?q=retired")
    await call("PUT", `products/${body.data[0].id}`, { active: false })
    expect(await names("products", "active=true")).toEqual(["Report"])
    expect(await names("products", "active=false&q=re")).toEqual(["Retired"])
    expect(await names("payment-links", "q=donate")).toEqual(["Donate"])
    expect(await names("payment-links", "q=onate")).toEqual([])
    expect(await names("paywalls", "q=a&active=true")).toEqual(["a"])
    expect(await names("paywalls", "active=false")).toEqual([])
    expect(await names("bundles", "q=%25")).toEqual([])
    for (const list of ["products", "payment-links", "paywalls", "bundles"])
      for (const query of ["active=maybe", "q=", "q=%20a"])
        expect((await call("GET", `${list}?${query}`)).status, `${list} ${query}`).toBe(400)
  })
})

describe("events", () => {
  it("of one thing, though they were sent nowhere", async () => {
    const paid = await rig.paid(await rig.sell(), 900_000n)
    const types = async () =>
      (await call("GET", `events?object=${paid}`)).body.data.map(({ event }: { event: string }) => event)
    const before = await types()
    expect(before).toContain("paywall.granted")
    expect((await call("GET", `events?object=pay_${"z".repeat(24)}`)).body.data).toEqual([])
    expect((await call("GET", "events?object=x")).status).toBe(400)
    const listed = (await call("GET", `timeline/${paid}`)).body.data.filter(
      ({ kind }: { kind: string }) => kind === "event",
    )
    expect(listed).toHaveLength(before.length)
    const { id } = (await call("GET", `events?object=${paid}`)).body.data[0]
    expect((await call("GET", `timeline/${id}`)).body.status).toMatchObject({ state: "unsent", word: "Not sent" })
  })
})
