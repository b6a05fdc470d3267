import { parseUnits } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { flatValue } from "../../../test/flat-value.ts"
import { type Life, lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { checksummed } from "../../platform/chain/hex.ts"

let rig: PayoutRig
let life: Life
beforeAll(async () => {
  rig = await startPayoutRig()
  life = lifeOf(rig)
})
afterAll(() => rig.stop())

interface Entry {
  at: string
  reason: string
  deposit: string
  amountIn: string | null
  amountOut: string | null
  balance: string | null
  [key: string]: unknown
}

const books = async (query = "", as = "shop"): Promise<{ data: Entry[]; total: number }> => {
  const { status, body } = await rig.service.call("GET", `/api/console/books${query}`, undefined, { as })
  expect(status).toBe(200)
  return body
}
const csvOf = async (path: string, as = "shop") =>
  (await rig.service.call("GET", path, undefined, { as })).body as string
const units = (text: string | null) => (text === null ? 0n : parseUnits(text, 6))
const sumOf = (rows: Entry[]) => rows.reduce((sum, row) => sum + units(row.amountIn) - units(row.amountOut), 0n)

describe("the books of a merchant", () => {
  let shops: Awaited<ReturnType<Life["live"]>>
  beforeAll(async () => {
    await life.begin()
    await rig.service.merchant("rival")
    shops = await life.live()
  })

  it("hold every transfer in and out with its reason, newest first", async () => {
    const { data, total } = await books()
    expect(total).toBe(data.length)
    const reasons = data.map(row => row.reason)
    const count = (reason: string) => reasons.filter(each => each === reason).length
    expect([count("payment"), count("share"), count("sweep"), count("recovery")]).toEqual([5, 2, 1, 1])
    expect(data.filter(row => row.paymentStatus === "open").map(row => row.exception)).toHaveLength(2)
    expect(data.map(row => row.at)).toEqual(
      data
        .map(row => row.at)
        .sort()
        .reverse(),
    )
    expect(data.find(row => row.reason === "sweep")).toMatchObject({
      direction: "out",
      amountIn: null,
      amountOut: "1.30",
      currency: "USDC",
      chain: "base-sepolia",
      deposit: checksummed(shops.swept.deposit.address),
      from: checksummed(shops.swept.deposit.address),
      to: checksummed(shops.swept.deposit.owner),
      status: "final",
      paywallId: shops.swept.id,
      sessionId: null,
      payoutId: expect.any(String),
      txHash: expect.stringMatching(/^0x/),
      blockNumber: expect.stringMatching(/^\d+$/),
      balance: null,
    })
    const paid = data.find(row => row.amountIn === "1.000001")
    expect(paid).toMatchObject({
      reason: "payment",
      paymentStatus: "granted",
      paymentId: expect.stringMatching(/^pay_/),
    })
  })

  it("add up to what lies on chain, to the unit, for each deposit and all of them", async () => {
    const { data } = await books()
    for (const { deposit } of Object.values(shops)) {
      const rows = data.filter(row => row.deposit === checksummed(deposit.address))
      expect(sumOf(rows)).toBe(await rig.balanceOf(deposit.address))
      const own = await books(`?deposit=${deposit.address}`)
      expect(own.total).toBe(rows.length)
      expect(units(own.data[0]?.balance ?? null)).toBe(await rig.balanceOf(deposit.address))
    }
  })

  it("show a deposit's balance after each transfer, also in a later part of the list", async () => {
    const query = `?deposit=${shops.split.deposit.address}`
    expect((await books(query)).data.map(row => row.balance)).toEqual(["0.00", expect.any(String), "1.000001"])
    expect((await books(`${query}&limit=1&offset=1`)).data).toEqual([(await books(query)).data[1]])
  })

  it("are narrowed by time, paywall and session", async () => {
    const { data, total } = await books()
    const middle = data[4]?.at ?? ""
    const later = await books(`?from=${middle}`)
    const earlier = await books(`?to=${middle}`)
    expect(later.total + earlier.total).toBe(total)
    expect(earlier.data.every(row => row.at < middle)).toBe(true)
    expect((await books(`?paywallId=${shops.swept.id}`)).total).toBe(4)
    expect((await books(`?sessionId=cs_${"a".repeat(24)}`)).total).toBe(0)
  })

  it("contain only the merchant's own", async () => {
    expect((await books("", "rival")).total).toBe(0)
    expect((await books(`?deposit=${shops.split.deposit.address}`, "rival")).total).toBe(0)
    expect((await csvOf("/api/console/books.csv", "rival")).trim().split("\r\n")).toHaveLength(1)
    expect((await csvOf("/api/console/deposits.csv", "rival")).trim().split("\r\n")).toHaveLength(1)
  })

  it("come as CSV with the same rows", async () => {
    const { data } = await books()
    const lines = (await csvOf("/api/console/books.csv")).trim().split("\r\n")
    const names = lines[0]?.split(",") ?? []
    expect(lines.slice(1).map(line => Object.fromEntries(line.split(",").map((cell, i) => [names[i], cell])))).toEqual(
      data.map(each => {
        const row = flatValue(each)
        return Object.fromEntries(names.map(name => [name, String(row[name] ?? "")]))
      }),
    )
    expect(await csvOf("/api/console/reports/books.csv")).toBe(`${lines.join("\r\n")}\r\n`)
  })

  it.each([
    ["from=2026-02-30", "from"],
    ["to=noon", "to"],
    ["deposit=0x12", "deposit"],
    ["deposit=0x833589fcD6eDb6E08f4c7C32D4f71b54bdA02913", "deposit"],
    ["paywallId=x", "paywallId"],
    ["sessionId=x", "sessionId"],
    ["limit=0", "limit"],
  ])("400: %s", async (query, path) => {
    for (const route of ["books", ...(path === "limit" ? [] : ["books.csv"])]) {
      const { status, body } = await rig.service.call("GET", `/api/console/${route}?${query}`, undefined, {
        as: "shop",
      })
      expect([status, body.error, body.details[0].path]).toEqual([400, "VALIDATION_ERROR", path])
    }
  })

  it("export the terms of every deposit", async () => {
    const { body } = await rig.service.call("GET", "/api/console/deposits", undefined, { as: "shop" })
    expect(body.total).toBe(3)
    const { deposit } = shops.split
    const [terms] = body.data.filter((row: { address: string }) => row.address === checksummed(deposit.address))
    expect(terms).toMatchObject({
      chain: "base-sepolia",
      chainId: 84532,
      token: checksummed(rig.token),
      factory: checksummed(deposit.factory),
      salt: deposit.salt,
      owner: checksummed(deposit.owner),
      openAfter: Number(deposit.open_after_s),
      opensAt: new Date(Number(deposit.open_after_s) * 1_000).toISOString(),
      paywallId: shops.split.id,
      sessionId: null,
    })
    const lines = (await csvOf("/api/console/deposits.csv")).trim().split("\r\n")
    expect(lines).toHaveLength(4)
    expect(lines[0]?.split(",").map(name => `${body.data[0][name] ?? ""}`)).toEqual(lines[1]?.split(","))
  })
})
