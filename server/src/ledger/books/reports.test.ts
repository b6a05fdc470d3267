// Reports agree with the books, and their parts with the whole, to the base unit.
import { sql } from "kysely"
import { formatUnits, parseUnits } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Life, lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { storeFixed } from "../rates/store-rates.ts"

let rig: PayoutRig
let life: Life
let shops: Awaited<ReturnType<Life["live"]>>
beforeAll(async () => {
  rig = await startPayoutRig()
  life = lifeOf(rig)
  await life.begin()
  await rig.service.merchant("rival")
  // One euro is 1.25 dollars, and a day later 1.60.
  const before = new Date(rig.service.ctx.now().getTime() - 3_600_000)
  await storeFixed(rig.service.ctx.db, { EUR: "1.25", JPY: "0.008" }, before)
  shops = await life.live()
  await sql`update rate_sources set complete_until = '2100-01-01'`.execute(rig.service.ctx.db)
  expect((await put({ currency: "EUR" })).status).toBe(200)
})
afterAll(() => rig.stop())

const put = (body: object) => rig.service.call("PUT", "/api/console/settings", body, { as: "shop" })
const get = (path: string, as = "shop") => rig.service.call("GET", `/api/console/${path}`, undefined, { as })
type Line = Record<string, string>
async function report(path: string, as = "shop"): Promise<Line[]> {
  const { status, body } = await get(`reports/${path}`, as)
  expect(status).toBe(200)
  const [names = "", ...lines] = (body as string).trim().split("\r\n")
  return lines.map(line => Object.fromEntries(line.split(",").map((cell, i) => [names.split(",")[i], cell])))
}
const units = (text: string | undefined | null) => parseUnits(text || "0", 6)
const sum = (values: bigint[]) => values.reduce((total, value) => total + value, 0n)
const inEuro = (amount: string, rate = 0.8) => (Math.round(Number(amount) * rate * 100) / 100).toFixed(2)

describe("the report of payouts", () => {
  it("has every payout with parts that add up to it, each of a payment, with its value then and at the payout", async () => {
    const lines = await report("payouts.csv")
    const { data } = (await get("books?limit=500")).body
    const out = data.filter((row: Line) => ["sweep", "share", "capture"].includes(row.reason as string))
    const ids = new Set(lines.map(line => line.payoutId))
    expect(ids).toEqual(new Set(out.map((row: Line) => row.payoutId)))
    for (const { payoutId, amountOut } of out) {
      const parts = lines.filter(line => line.payoutId === payoutId)
      expect(sum(parts.map(part => units(part.amount)))).toBe(units(amountOut))
      expect(parts.map(part => part.payoutAmount)).toEqual(parts.map(() => amountOut))
    }
    for (const line of lines)
      expect(line).toMatchObject({
        paymentId: expect.stringMatching(/^pay_/),
        payer: expect.stringMatching(/^0x/),
        valueCurrency: "EUR",
        rateReceived: "0.80000000",
        valueReceived: inEuro(line.amount ?? ""),
        ratePaid: "0.80000000",
        valuePaid: inEuro(line.amount ?? ""),
      })
    expect(lines.filter(line => line.type === "sweep").map(line => line.paywallId)).toContain(shops.swept.id)
    expect(lines.some(line => line.type === "share")).toBe(true)
  })

  it("is the same in parts", async () => {
    const lines = await report("payouts.csv")
    const middle = lines.at(-1)?.paidAt ?? ""
    const later = await report(`payouts.csv?from=${middle}`)
    const earlier = await report(`payouts.csv?to=${middle}`)
    expect([...later, ...earlier]).toEqual(lines)
    expect(later.length).toBeGreaterThan(0)
  })
})

describe("the report of balances", () => {
  const total = (lines: Line[], line: string) =>
    sum(lines.filter(each => each.line === line).map(each => units(each.amount)))
  const change = (lines: Line[]) =>
    sum(lines.map(each => (each.direction === "in" ? 1n : each.direction === "out" ? -1n : 0n) * units(each.amount)))

  it("closes with what lies on chain", async () => {
    const lines = await report("balance.csv")
    const onChain = await Promise.all(Object.values(shops).map(({ deposit }) => rig.balanceOf(deposit.address)))
    expect(total(lines, "closing")).toBe(sum(onChain))
    expect(total(lines, "opening")).toBe(0n)
    expect(change(lines)).toBe(total(lines, "closing"))
  })

  it("opens with what the period before closed with", async () => {
    const { data } = (await get("books?limit=500")).body
    for (const { at } of data) {
      const before = await report(`balance.csv?to=${at}`)
      const after = await report(`balance.csv?from=${at}`)
      expect(total(after, "opening")).toBe(total(before, "closing"))
      expect(total(after, "opening") + change(after)).toBe(total(after, "closing"))
    }
  })
})

describe("the report for the tax office", () => {
  it("adds up the books by month, with the value of each transfer at its time", async () => {
    const { data } = (await get("books?limit=500")).body
    const of = (...reasons: string[]) => data.filter((row: Line) => reasons.includes(row.reason as string))
    const lines = await report("tax.csv")
    const received = of("payment", "capture")
    expect(sum(lines.map(line => units(line.received)))).toBe(sum(received.map((row: Line) => units(row.amountIn))))
    expect(sum(lines.map(line => units(line.returned)))).toBe(
      sum(of("return", "given_back").map((row: Line) => units(row.amountOut))),
    )
    for (const line of lines)
      expect(units(line.net)).toBe(units(line.received) - units(line.returned) - units(line.refunded))
    const value = received.reduce(
      (all: number, row: { value: { amount: string } }) => all + Number(row.value.amount),
      0,
    )
    expect(lines.reduce((all, line) => all + Number(line.valueReceived), 0)).toBeCloseTo(value, 6)
    expect(lines.every(line => line.unvalued === "0" && line.valueCurrency === "EUR")).toBe(true)
  })

  it("divides at midnight of the time zone", async () => {
    const { data } = (await get("books?limit=500")).body
    const month = (at: string, timeZone: string) =>
      new Intl.DateTimeFormat("en-CA", { timeZone, year: "numeric", month: "2-digit" }).format(new Date(at)).slice(0, 7)
    for (const tz of ["UTC", "Pacific/Kiritimati", "America/St_Johns"]) {
      const lines = await report(`tax.csv?tz=${tz}`)
      const ours = data.filter((row: Line) => row.reason === "payment")
      for (const name of new Set(ours.map((row: Line) => month(row.at ?? "", tz))))
        expect(sum(lines.filter(line => line.month === name).map(line => units(line.received)))).toBe(
          sum(ours.filter((row: Line) => month(row.at ?? "", tz) === name).map((row: Line) => units(row.amountIn))),
        )
    }
  })

  it("divides at midnight of the merchant's zone if it gets no other", async () => {
    for (const tz of ["Pacific/Kiritimati", "America/St_Johns"]) {
      expect((await put({ timeZone: tz })).status).toBe(200)
      expect(await report("tax.csv")).toEqual(await report(`tax.csv?tz=${tz}`))
    }
    const kiritimati = await report("tax.csv?tz=Pacific/Kiritimati")
    await put({ timeZone: null })
    expect(await report("tax.csv")).toEqual(await report("tax.csv?tz=UTC"))
    expect(kiritimati).not.toEqual([])
  })

  it("says how many transfers have no known value, and never values them with 0.00", async () => {
    await sql`update rate_sources set complete_until = '2000-01-01'`.execute(rig.service.ctx.db)
    const lines = await report("tax.csv")
    expect(lines.map(line => [line.valueReceived, line.valueNet])).toEqual(lines.map(() => ["", ""]))
    expect(lines.every(line => Number(line.unvalued) > 0)).toBe(true)
    expect((await get("transactions")).body.data.map((row: { value: unknown }) => row.value)).toContain(null)
    await sql`update rate_sources set complete_until = '2100-01-01'`.execute(rig.service.ctx.db)
  })
})

describe("the value in lists", () => {
  it("is in the merchant's currency, with its rate and whose it is", async () => {
    const [row] = (await get("transactions?type=payment")).body.data
    expect(row.value).toEqual({
      currency: "EUR",
      amount: inEuro(row.amount),
      rate: "0.80000000",
      source: "fixed; USDC at par",
      rateAt: expect.stringMatching(/Z$/),
    })
    const [header = "", line = ""] = ((await get("transactions.csv?type=payment")).body as string).split("\r\n")
    expect(line.split(",")[header.split(",").indexOf("value")]).toBe(row.value.amount)
  })

  it("has the digits of its currency, and is of now at once when that is changed", async () => {
    expect((await put({ currency: "JPY" })).body.currency).toBe("JPY")
    const [row] = (await get("transactions?type=payment")).body.data
    expect(row.value.amount).toBe(formatUnits((units(row.amount) * 125n + 500_000n) / 1_000_000n, 0))
    await put({ currency: "USD" })
    const [dollars] = (await get("transactions?type=payment")).body.data
    expect(dollars.value).toMatchObject({ currency: "USD", rate: "1.00000000", source: "USDC at par", rateAt: null })
    await put({ currency: "EUR" })
  })
})

it("is empty for another merchant", async () => {
  for (const kind of ["books", "payouts", "balance", "tax"]) expect(await report(`${kind}.csv`, "rival")).toEqual([])
})

it.each([
  ["tax.csv?tz=Mars/Olympus", "tz"],
  ["tax.csv?tz=%2B02:00", "tz"],
  ["tax.csv?from=2026-02-30", "from"],
  ["balance.csv?to=noon", "to"],
  ["payouts.csv?from=x", "from"],
  ["books.csv?from=x", "from"],
])("400: %s", async (path, field) => {
  const { status, body } = await get(`reports/${path}`)
  expect([status, body.error, body.details[0].path]).toEqual([400, "VALIDATION_ERROR", field])
})

it.each([
  ["GBP", "must be USD or a currency whose rates this service has: EUR, JPY"],
  ["euro", "must be a currency: three capital letters"],
  ["eur", "must be a currency: three capital letters"],
  ["", "must be a currency: three capital letters"],
])("400: a currency %j, and nothing is changed", async (currency, message) => {
  const { status, body } = await put({ name: "Other", currency })
  expect([status, body.error]).toEqual([400, "VALIDATION_ERROR"])
  expect(JSON.stringify(body.details)).toContain(message)
  expect((await get("settings")).body).toMatchObject({ name: expect.not.stringMatching("Other"), currency: "EUR" })
})
