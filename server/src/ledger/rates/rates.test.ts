// Rates are stored once: a value that was read never changes, whatever is stored later, in whatever order.
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import { checkRates } from "../../operations/doctor/check-rates.ts"
import { ratesRound } from "./fetch-rates.ts"
import { storeEcb, storeFixed } from "./store-rates.ts"

let service: TestService
beforeAll(async () => {
  service = await startService({})
})
afterAll(() => service.stop())
beforeEach(() => service.empty())

const at = (text: string) => new Date(text)
const day = (date: string, dollar: string, others: Record<string, string> = {}) => ({
  date,
  perEuro: { USD: dollar, ...others },
})
const store = (days: ReturnType<typeof day>[], now: string, newest = true) =>
  storeEcb(service.ctx.db, days, { now: at(now), newest })
async function rateAt(time: string | Date, currency = "EUR", token = "USDC") {
  const { rows } = await sql<{ rate: string; source: string; published_at: Date | null }>`
    select rate::text, source, published_at from rate_at(${token}, ${currency}, ${new Date(time)}::timestamptz)`.execute(
    service.ctx.db,
  )
  return rows[0]
}

describe("the rate of a token", () => {
  beforeEach(() =>
    // A Thursday, a Friday and the Monday after them, read on Tuesday.
    store(
      [day("2026-11-19", "1.10"), day("2026-11-20", "1.25", { JPY: "150" }), day("2026-11-23", "1.60")],
      "2026-11-24T09:00:00Z",
    ),
  )

  it.each([
    // 17:00 in Frankfurt is 16:00 UTC in winter.
    ["just before Friday's", "2026-11-20T15:59:59.999Z", "0.90909091"],
    ["from Friday's on", "2026-11-20T16:00:00Z", "0.80000000"],
    ["on Sunday: Friday's", "2026-11-22T23:00:00Z", "0.80000000"],
    ["on Monday morning: Friday's", "2026-11-23T15:59:00Z", "0.80000000"],
    ["on Monday evening", "2026-11-23T16:00:00Z", "0.62500000"],
  ])("is that published last: %s", async (_, time, rate) => {
    expect((await rateAt(time))?.rate).toBe(rate)
  })

  it("names its source and its time, and goes through the dollar", async () => {
    expect(await rateAt("2026-11-21T00:00:00Z", "JPY")).toEqual({
      rate: "120.00000000",
      source: "ecb; USDC at par",
      published_at: at("2026-11-20T16:00:00Z"),
    })
    expect(await rateAt("1999-01-01T00:00:00Z", "USD")).toEqual({
      rate: "1.00000000",
      source: "USDC at par",
      published_at: null,
    })
  })

  it.each([
    ["before the first one", "2026-11-19T15:59:59Z", "EUR", "USDC"],
    ["after what is known", "2026-11-24T09:00:00.001Z", "EUR", "USDC"],
    ["more than five days after the last one of the currency", "2026-11-25T16:00:01Z", "JPY", "USDC"],
    ["of an unknown currency", "2026-11-21T00:00:00Z", "XYZ", "USDC"],
    ["of a token that no one values", "2026-11-21T00:00:00Z", "EUR", "DAI"],
  ])("is not known %s", async (_, time, currency, token) => {
    await store([], "2026-11-24T09:00:00Z")
    if (currency === "JPY") await store([day("2026-11-25", "1.7")], "2026-11-26T09:00:00Z")
    expect(await rateAt(time, currency, token)).toBeUndefined()
  })

  it("is known for five days, over Easter, and then no longer", async () => {
    await store([day("2026-12-24", "2")], "2027-01-05T09:00:00Z")
    expect((await rateAt("2026-12-29T16:00:00Z"))?.rate).toBe("0.50000000")
    expect(await rateAt("2026-12-29T16:00:00.001Z")).toBeUndefined()
  })
})

describe("a file that an operator imports", () => {
  it("is complete for a day after its last one", async () => {
    expect(await store([day("2026-11-20", "1.25")], "2026-11-30T00:00:00Z", false)).toBe(1)
    expect((await rateAt("2026-11-21T16:00:00Z"))?.rate).toBe("0.80000000")
    expect(await rateAt("2026-11-21T16:00:01Z")).toBeUndefined()
  })

  it("fills the time before the first rate, and changes nothing that was known", async () => {
    await store([day("2026-11-20", "1.25"), day("2026-11-24", "1.60")], "2026-11-24T18:00:00Z")
    const before = await rateAt("2026-11-23T20:00:00Z")
    expect(
      await store(
        [day("2026-11-18", "1.1"), day("2026-11-20", "9"), day("2026-11-23", "9")],
        "2026-11-25T00:00:00Z",
        false,
      ),
    ).toBe(1)
    expect(await rateAt("2026-11-23T20:00:00Z")).toEqual(before)
    expect((await rateAt("2026-11-19T00:00:00Z"))?.rate).toBe("0.90909091")
  })
})

describe("rates of the operator's own", () => {
  it("count from when they are set until they are changed, also for a token", async () => {
    const { db } = service.ctx
    await storeFixed(db, { EUR: "1.25" }, at("2026-11-20T00:00:00Z"))
    await storeFixed(db, { EUR: "1.25" }, at("2026-11-21T00:00:00Z"))
    await storeFixed(db, { EUR: "1.60", USDC: "0.5" }, at("2026-11-22T00:00:00Z"))
    expect(await rateAt("2026-11-19T23:59:59Z")).toBeUndefined()
    expect((await rateAt("2026-11-21T23:59:59Z"))?.rate).toBe("0.80000000")
    expect(await rateAt("2026-11-22T00:00:00Z")).toEqual({
      rate: "0.31250000",
      source: "fixed; fixed USDC",
      published_at: at("2026-11-22T00:00:00Z"),
    })
    expect((await rateAt("2026-11-22T00:00:00Z", "USD"))?.rate).toBe("0.50000000")
    expect(await rateAt("2026-11-22T00:00:00.001Z")).toBeUndefined()
    expect((await sql`select from rates`.execute(db)).rows).toHaveLength(3)
  })
})

it("a value that was read never changes, whatever is stored after it", async () => {
  const dates = fc.integer({ min: 1, max: 28 }).map(n => `2026-11-${`${n}`.padStart(2, "0")}`)
  const rate = fc.integer({ min: 80, max: 200 }).map(n => `${n / 100}`)
  const stored = fc.oneof(
    fc.record({
      kind: fc.constant("ecb" as const),
      newest: fc.boolean(),
      days: fc.array(fc.tuple(dates, rate), { minLength: 1, maxLength: 4 }),
    }),
    fc.record({ kind: fc.constant("fixed" as const), rate }),
  )
  const times = Array.from({ length: 30 }, (_, n) => at(`2026-11-01T16:30:00Z`).getTime() + n * 86_400_000)
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.integer({ min: 0, max: 6 }), stored), { minLength: 2, maxLength: 6 }),
      async steps => {
        await service.empty()
        const read = new Map<number, unknown>()
        let now = at("2026-11-01T00:00:00Z").getTime()
        for (const [days, step] of steps) {
          now += days * 86_400_000
          // Nobody publishes rates of tomorrow.
          const known =
            step.kind === "ecb" ? step.days.filter(([date]) => at(`${date}T16:00:00Z`).getTime() <= now) : []
          if (step.kind === "fixed") await storeFixed(service.ctx.db, { EUR: step.rate }, new Date(now))
          else
            await store(
              known.map(([date, dollar]) => day(date, dollar)),
              new Date(now).toISOString(),
              step.newest,
            )
          for (const time of times) {
            const value = await rateAt(new Date(time))
            if (read.has(time)) expect(value).toEqual(read.get(time))
            else if (value) read.set(time, value)
          }
        }
      },
    ),
    { numRuns: 25 },
  )
})

describe("the worker", () => {
  let answer: { status: number; body: string }
  let asked = 0
  const server = createServer((_, response) => {
    asked++
    response.writeHead(answer.status).end(answer.body)
  })
  beforeAll(async () => void (await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))))
  afterAll(() => void server.close())
  const ctx = () => {
    const ratesUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}/rates.xml`
    return { ...service.ctx, settings: { ...service.ctx.settings, rates: "ecb" as const, ratesUrl } }
  }
  const query = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(service.ctx.db)).rows
  const due = () => sql`update rate_sources set next_at = now()`.execute(service.ctx.db)

  it("reads the file once in half an hour, also after it failed, and alarms when it has failed for a day", async () => {
    const paidAt = service.ctx.now()
    const yesterday = new Date(paidAt.getTime() - 86_400_000).toISOString().slice(0, 10)
    asked = 0
    answer = { status: 503, body: "" }
    await ratesRound(ctx())
    await ratesRound(ctx())
    expect(asked).toBe(1)
    await due()
    answer = { status: 200, body: "<html>" }
    await ratesRound(ctx())
    expect(await rateAt(paidAt)).toBeUndefined()
    await due()
    answer = { status: 200, body: `<Cube><Cube time='${yesterday}'><Cube currency='USD' rate='1.25'/></Cube></Cube>` }
    await Promise.all([ratesRound(ctx()), ratesRound(ctx())])
    expect(asked).toBe(3)
    expect(await rateAt(paidAt)).toMatchObject({ rate: "0.80000000" })
    expect(await checkRates(ctx().settings, query)).toMatchObject([{ level: "ok" }])
    await sql`update rate_sources set complete_until = now() - interval '25 hours'`.execute(service.ctx.db)
    expect(await checkRates(ctx().settings, query)).toMatchObject([{ level: "alarm", check: "rates" }])
    expect(await checkRates({ ...ctx().settings, rates: undefined }, query)).toEqual([])
  })
})
