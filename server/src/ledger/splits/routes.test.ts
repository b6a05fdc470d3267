import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { implementationOf } from "../../platform/chain/deposit-terms.ts"
import { MULTICALL3 } from "../../platform/chain/multicall.ts"

const serviceWallet = `0x${"5e".repeat(20)}` as never
let service: TestService
beforeAll(async () => {
  service = await startService({ settings: { serviceWallets: [serviceWallet] } })
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
})

const url = "/api/console/splits"
const A = "0x70997970C51812dc3A010C7d01b50e0d17dc79C8"
const B = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC"
const C = "0x90F79bf6EB2c4f870365E785982E1f101E93b906"
const two = [
  { address: A, percent: 70, label: "Author" },
  { address: B, percent: 30 },
]
const call = (method: "GET" | "POST" | "PUT" | "DELETE", path: string, body?: unknown, as = "shop") =>
  service.call(method, path, body, { as })
const create = (recipients: unknown = two, more: object = {}) =>
  call("POST", url, { name: "Film", recipients, ...more })
const rows = async () =>
  (await service.ctx.db.selectFrom("splits").selectAll().execute()).length +
  (await service.ctx.db.selectFrom("recipients").selectAll().execute()).length
const many = (n: number) =>
  Array.from({ length: n }, (_, i) => ({ address: `0x${(i + 1).toString(16).padStart(40, "a")}`, percent: 100 / n }))

describe("POST /api/console/splits", () => {
  it("201: the split, in exactly the documented shape", async () => {
    const { status, body } = await create(two, { description: "Halves, nearly" })
    expect(status).toBe(201)
    expect(body).toEqual({
      id: expect.stringMatching(/^spl_[a-z0-9]{24}$/),
      name: "Film",
      description: "Halves, nearly",
      recipients: [
        { address: A, percent: 70, label: "Author" },
        { address: B, percent: 30, label: null },
      ],
      createdAt: expect.stringMatching(/Z$/),
    })
  })

  it("201: percentages are exact to four decimals, in any order, with 2 to 50 recipients", async () => {
    const thirds = [33.3333, 33.3333, 33.3334].map((percent, i) => ({ address: [A, B, C][i], percent }))
    expect((await create(thirds)).body.recipients.map((each: { percent: number }) => each.percent)).toEqual([
      33.3333, 33.3333, 33.3334,
    ])
    const tiny = [
      { address: A, percent: 0.0001 },
      { address: B, percent: 99.9999 },
    ]
    expect((await create(tiny)).status).toBe(201)
    // 0.1 + 0.2 + 99.7 is not 100 in floating point.
    const floats = [0.1, 0.2, 99.7].map((percent, i) => ({ address: [A, B, C][i], percent }))
    expect((await create(floats)).status).toBe(201)
    expect((await create(many(50))).status).toBe(201)
    const lower = two.map(each => ({ ...each, address: each.address.toLowerCase() }))
    expect((await create(lower)).body.recipients[0].address).toBe(A)
  })

  it.each<[string, unknown]>([
    ["one recipient", [{ address: A, percent: 100 }]],
    ["none", []],
    ["51", [...many(50).map(each => ({ ...each, percent: 1.9 })), { address: A, percent: 5 }]],
    ["99.9999", [two[0], { address: B, percent: 29.9999 }]],
    ["100.0001", [two[0], { address: B, percent: 30.0001 }]],
    ["five decimals", `[{"address":"${A}","percent":30.00000},{"address":"${B}","percent":70}]`],
    ["an exponent", `[{"address":"${A}","percent":3e1},{"address":"${B}","percent":70}]`],
    ["a zero", [...two, { address: C, percent: 0 }]],
    [
      "a negative",
      [
        { address: A, percent: -10 },
        { address: B, percent: 110 },
      ],
    ],
    ["an address twice", [two[0], { address: A.toLowerCase(), percent: 30 }]],
    ["the zero address", [two[0], { address: `0x${"0".repeat(40)}`, percent: 30 }]],
    ["the token", [two[0], { address: paperNetwork.token.address, percent: 30 }]],
    ["the factory", [two[0], { address: paperNetwork.depositFactory, percent: 30 }]],
    ["the factory's code", [two[0], { address: implementationOf(paperNetwork.depositFactory), percent: 30 }]],
    ["Multicall3", [two[0], { address: MULTICALL3, percent: 30 }]],
    ["the precompile of ecrecover", [two[0], { address: `0x${"1".padStart(40, "0")}`, percent: 30 }]],
    ["the precompile of P-256", [two[0], { address: `0x${"100".padStart(40, "0")}`, percent: 30 }]],
    ["Permit2", [two[0], { address: "0x000000000022D473030F116dDEE9F6B43aC78BA3", percent: 30 }]],
    ["a predeploy", [two[0], { address: `0x42${"15".padStart(38, "0")}`, percent: 30 }]],
    ["a wallet of the service", [two[0], { address: serviceWallet, percent: 30 }]],
  ])("400 INVALID_SPLIT: %s, and nothing is written", async (_, recipients) => {
    const body = typeof recipients === "string" ? `{"name":"a","recipients":${recipients}}` : { name: "a", recipients }
    const answer = await call("POST", url, body)
    expect(answer).toMatchObject({ status: 400, body: { error: "INVALID_SPLIT" } })
    expect(answer.body.details.length).toBeGreaterThan(0)
    expect(await rows()).toBe(0)
  })

  it("400 INVALID_SPLIT: a receiving address of this service", async () => {
    const { id } = (await call("POST", "/api/console/paywalls", { name: "a", price: 5 })).body
    const { payTo } = (await service.call("GET", `/api/paywalls/${id}`)).body
    expect((await create([two[0], { address: payTo, percent: 30 }])).body.error).toBe("INVALID_SPLIT")
  })

  it("400 VALIDATION_ERROR: not an address, not a number, or not a field", async () => {
    for (const wrong of [
      { address: "0x1", percent: 30 },
      { address: "__proto__", percent: 30 },
      { address: A.replace("C5", "c5"), percent: 30 },
      { address: B, percent: "30" },
      { address: B, percent: 30, part: 1 },
    ])
      expect((await create([two[0], wrong])).body.error).toBe("VALIDATION_ERROR")
    expect((await call("POST", url, { recipients: two })).body.error).toBe("VALIDATION_ERROR")
    expect(await rows()).toBe(0)
  })

  it("403 SANCTIONS_MATCH for a listed recipient", async () => {
    const { mkdtempSync, writeFileSync } = await import("node:fs")
    const path = `${mkdtempSync("/tmp/sluice-list-")}/sdn.txt`
    writeFileSync(path, B)
    const { settings } = service.ctx
    settings.sanctionsFile = path
    try {
      expect(await create()).toMatchObject({ status: 403, body: { error: "SANCTIONS_MATCH" } })
      expect(await rows()).toBe(0)
    } finally {
      settings.sanctionsFile = undefined
    }
  })

  it("401 UNAUTHORIZED without a token", async () => {
    expect((await service.call("POST", url, { name: "a", recipients: two })).status).toBe(401)
  })
})

describe("GET /api/console/splits", () => {
  it("200: one's own, newest first, with the total, in exactly the documented shape", async () => {
    for (const name of ["first", "second"]) {
      await create(two, { name })
      service.advance(1_000)
    }
    await service.merchant("rival")
    await call("POST", url, { name: "theirs", recipients: two }, "rival")
    const { body } = await call("GET", `${url}?limit=1`)
    expect(body.total).toBe(2)
    expect(body.data.map((each: { name: string }) => each.name)).toEqual(["second"])
    expect(Object.keys(body.data[0])).toEqual(["id", "name", "recipients", "createdAt"])
  })
})

describe("PUT, GET and DELETE /api/console/splits/:id", () => {
  it("200: replaces all recipients, and leaves the fields that were not given", async () => {
    const { id } = (await create(two, { description: "old" })).body
    const recipients = [
      { address: C, percent: 50 },
      { address: A, percent: 50 },
    ]
    const { status, body } = await call("PUT", `${url}/${id}`, { recipients })
    expect(status).toBe(200)
    expect(Object.keys(body)).toEqual(["id", "name", "recipients", "updatedAt"])
    expect(body.recipients.map((each: { address: string }) => each.address)).toEqual([C, A])
    await call("PUT", `${url}/${id}`, { name: "new" })
    expect((await call("GET", `${url}/${id}`)).body).toMatchObject({
      name: "new",
      description: "old",
      recipients: recipients.map(each => ({ ...each, label: null })),
    })
  })

  it("200: deletes, and what used it is the merchant's alone from now on", async () => {
    const { id } = (await create()).body
    const paywall = (await call("POST", "/api/console/paywalls", { name: "a", price: 5, splitId: id })).body
    expect(paywall.splitId).toBe(id)
    expect(await call("DELETE", `${url}/${id}`)).toMatchObject({ status: 200, body: { deleted: true, id } })
    expect((await call("GET", `/api/console/paywalls/${paywall.id}`)).body.splitId).toBeNull()
    expect((await call("DELETE", `${url}/${id}`)).body.error).toBe("NOT_FOUND")
  })

  it("400 INVALID_SPLIT, 403 FORBIDDEN, 404 NOT_FOUND; nothing is changed", async () => {
    const { id } = (await create()).body
    await service.merchant("rival")
    const before = await sql`select * from splits`.execute(service.ctx.db)
    expect((await call("PUT", `${url}/${id}`, { recipients: [two[0]] })).body.error).toBe("INVALID_SPLIT")
    for (const [method, body] of [
      ["PUT", { name: "b" }],
      ["DELETE", undefined],
      ["GET", undefined],
    ] as const) {
      expect((await call(method, `${url}/${id}`, body, "rival")).body.error).toBe("FORBIDDEN")
      expect((await call(method, `${url}/spl_${"a".repeat(24)}`, body)).body.error).toBe("NOT_FOUND")
    }
    expect((await sql`select * from splits`.execute(service.ctx.db)).rows).toEqual(before.rows)
  })
})

describe("a paywall's splitId", () => {
  const versions = async (id: string) => {
    const rows = await service.ctx.db
      .selectFrom("paywall_versions")
      .innerJoin("deposits", "deposits.id", "paywall_versions.deposit_id")
      .select(["deposits.address", "recipient_set_id", "payees_hash"])
      .where("paywall_id", "=", id)
      .orderBy("n")
      .execute()
    expect(rows.every(row => (row.recipient_set_id === null) === /^0x0+$/.test(row.payees_hash))).toBe(true)
    return rows
  }

  it("opens a version with an address of its own for each change of it, or of the split", async () => {
    const split = (await create()).body.id
    const { id } = (await call("POST", "/api/console/paywalls", { name: "a", price: 5 })).body
    await call("PUT", `/api/console/paywalls/${id}`, { splitId: split })
    await call("PUT", `/api/console/paywalls/${id}`, { price: 6 })
    await call("PUT", `${url}/${split}`, { recipients: two.map(each => ({ ...each, percent: 50 })) })
    await call("PUT", `${url}/${split}`, { name: "renamed" })
    await call("PUT", `/api/console/paywalls/${id}`, { splitId: null })
    const opened = await versions(id)
    expect(opened.map(row => row.recipient_set_id === null)).toEqual([true, false, false, false, true])
    const distinct = (values: unknown[]) => values.map(value => values.indexOf(value))
    // A price alone changes neither the recipients nor the address that commits to them.
    expect(distinct(opened.map(row => row.address))).toEqual([0, 1, 1, 3, 4])
    expect(distinct(opened.map(row => row.payees_hash))).toEqual([0, 1, 1, 3, 0])
  })

  it("403 FORBIDDEN for another merchant's, 400 for an unknown one and for a price too low to divide", async () => {
    const { id } = (await create()).body
    await service.merchant("rival")
    const paywall = (body: object, as?: string) => call("POST", "/api/console/paywalls", { name: "a", ...body }, as)
    expect((await paywall({ price: 5, splitId: id }, "rival")).body.error).toBe("FORBIDDEN")
    expect((await paywall({ price: 5, splitId: `spl_${"a".repeat(24)}` })).body.details[0].path).toBe("splitId")
    expect((await paywall({ price: "0.019", splitId: id })).body.details[0].path).toBe("price")
    expect((await paywall({ price: "0.02", splitId: id })).status).toBe(201)
    const plain = (await paywall({ price: "0.01" })).body.id
    const answer = await call("PUT", `/api/console/paywalls/${plain}`, { splitId: id })
    expect(answer.body.details[0].path).toBe("price")
    // Nor can a split grow too large for what it is already attached to.
    const three = [34, 33, 33].map((percent, i) => ({ address: `0x${String(i + 1).repeat(40)}`, percent }))
    const larger = await call("PUT", `/api/console/splits/${id}`, { recipients: three })
    expect(larger.body.details?.[0].path).toBe("recipients")
    expect((await call("GET", `/api/console/paywalls/${plain}`)).body.splitId).toBeNull()
  })
})
