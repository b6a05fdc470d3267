// The overview, the balances and the books' file say the same to the base unit, whatever happened and wherever the clock is.
import fc from "fast-check"
import { parseUnits } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Counted, changes, happening, live, loosen, zones } from "../../../test/figures.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { moneyFigures } from "./figure-columns.ts"

const DAY_MS = 86_400_000
const { address: usdc } = paperNetwork.token

let service: TestService
beforeAll(async () => {
  service = await startService()
  await loosen(service.ctx)
})
afterAll(() => service.stop())

const get = async (path: string, as: string) => {
  const { status, body } = await service.call("GET", `/api/console/${path}`, undefined, { as })
  expect(status, JSON.stringify(body)).toBe(200)
  return body
}

type Sums = Record<string, bigint>
const add = (sums: Sums, key: string, amount: bigint) => {
  sums[key] = (sums[key] ?? 0n) + amount
}
/** Base units of an amount as the API shows it: those of an unknown token are base units already. */
const units = (text: string, token: string) => (token === checksummed(usdc) ? parseUnits(text, 6) : BigInt(text))

/** The figures of an answer by token and name, without those that are zero. */
function shownIn(figures: Record<string, string>[]): Sums {
  const sums: Sums = {}
  for (const of of figures)
    for (const name of Object.keys(moneyFigures)) {
      const amount = units(of[name] ?? "", of.token ?? "")
      if (amount !== 0n) sums[`${of.token} ${name}`] = amount
    }
  return sums
}

function expectedOf(counted: readonly Counted[]): Sums {
  const sums: Sums = {}
  for (const { token, figure, amount } of counted)
    if (token !== "") add(sums, `${checksummed(token)} ${figure}`, amount)
  return sums
}
const countOf = (counted: readonly Counted[], figure: string) =>
  counted.reduce((sum, each) => (each.figure === figure ? sum + each.count : sum), 0)

/** The sums of a file of the books, by token and figure. */
async function booksOf(as: string, query = ""): Promise<Sums> {
  const names: Record<string, string> = {
    payment: "received",
    unclaimed: "received",
    reserve: "reserved",
    share: "shares",
  }
  const out = { sweep: "swept", return: "returned", given_back: "returned", recovery: "recovered", unknown: "unknown" }
  const ofEscrow = { capture: "captured", void: "released", reclaim: "released", refund: "refunded" }
  Object.assign(names, out, ofEscrow)
  const [head = "", ...lines] = ((await get(`books.csv${query}`, as)) as string).trim().split("\r\n")
  const columns = head.split(",")
  const sums: Sums = {}
  for (const line of lines) {
    const cells = Object.fromEntries(line.split(",").map((cell, i) => [columns[i] ?? "", cell]))
    const token = checksummed(cells.token as typeof usdc)
    add(sums, `${token} ${names[cells.reason ?? ""]}`, units(cells.amountIn || cells.amountOut || "0", token))
  }
  return sums
}

let merchants = 0
async function newShop() {
  const sub = `shop-${++merchants}`
  const merchantId = await service.merchant(sub)
  const { body } = await service.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, { as: sub })
  const deposit = await service.ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", body.id)
    .executeTakeFirstOrThrow()
  return { sub, shop: { service, merchantId, deposit } }
}

describe("the figures of a merchant", () => {
  it("are those of the books and of the balances to the base unit, over both changes of the clocks", {
    timeout: 600_000,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.constantFrom(...changes),
        fc.array(happening, { minLength: 5, maxLength: 24 }),
        fc.constantFrom("hour", "day"),
        async (change, all, interval) => {
          const { sub, shop } = await newShop()
          const counted = await live(shop, change, all)
          const time = { from: new Date(change - 2 * DAY_MS), to: new Date(change + 3 * DAY_MS) }
          for (const tz of zones) {
            const query = `from=${time.from.toISOString()}&to=${time.to.toISOString()}&interval=${interval}&tz=${tz}`
            const overview = await get(`overview?${query}`, sub)
            const during = counted.filter(({ at }) => at >= Date.parse(overview.from) && at < Date.parse(overview.to))
            expect(during).toHaveLength(counted.length)
            expect(shownIn(overview.totals)).toEqual(withoutZero(expectedOf(counted)))
            // The books leave out what was reversed.
            const reversed = counted.filter(({ figure }) => figure === "reversed")
            const books = await booksOf(sub, `?from=${overview.from}&to=${overview.to}`)
            for (const { token, amount } of reversed)
              if (token !== "")
                for (const figure of ["received", "reversed"]) add(books, `${checksummed(token)} ${figure}`, amount)
            expect(shownIn(overview.totals)).toEqual(books)
            for (const [i, period] of overview.series.entries()) {
              const from = Date.parse(period.at)
              const until = Date.parse(overview.series[i + 1]?.at ?? overview.to)
              const within = counted.filter(({ at }) => at >= from && at < until)
              expect(shownIn(period.figures)).toEqual(withoutZero(expectedOf(within)))
              expect([period.checkouts, period.paid]).toEqual(["checkouts", "paid"].map(name => countOf(within, name)))
            }
            expect(overview.funnel).toMatchObject({
              converted: countOf(counted, "converted"),
              paid: countOf(counted, "paid"),
            })
            // The time that follows has all of this before it.
            const next = await get(
              `overview?from=${overview.to}&to=${new Date(Date.parse(overview.to) + 6 * DAY_MS).toISOString()}&interval=${interval}&tz=${tz}`,
              sub,
            )
            expect(shownIn(next.totals)).toEqual({})
            expect(shownIn(next.previous.totals)).toEqual(shownIn(overview.totals))
            expect(next.balances).toEqual(overview.balances)
          }
          const { data: balances } = await get("balances", sub)
          const all_ = await booksOf(sub)
          for (const { token, amount, inAddresses, inEscrow } of balances) {
            const of = (name: string) => all_[`${token} ${name}`] ?? 0n
            const escrow = of("reserved") - of("captured") - of("released")
            const addresses =
              of("received") - of("returned") - of("shares") - of("swept") - of("recovered") - of("unknown")
            expect([inAddresses, inEscrow, amount].map(text => units(text, token))).toEqual([
              addresses,
              escrow,
              addresses + escrow,
            ])
          }
        },
      ),
      { numRuns: 16 },
    )
  })
})

describe("the overview", () => {
  it("refuses what it can't answer, with what to do", async () => {
    await service.merchant("asker")
    const refused = async (query: string) => {
      const { status, body } = await service.call("GET", `/api/console/overview?${query}`, undefined, { as: "asker" })
      expect([status, body.error]).toEqual([400, "VALIDATION_ERROR"])
      return body.details.map((each: { message: string }) => each.message)
    }
    expect(await refused("tz=Mars/Olympus")).toEqual([
      "`tz` must be the name of a time zone, such as Asia/Kolkata or UTC.",
    ])
    expect(await refused("from=2026-02-01&to=2026-02-01")).toEqual(["`from` must be before `to`."])
    expect(await refused("from=2026-02-02&to=2026-02-01")).toEqual(["`from` must be before `to`."])
    expect(await refused("from=2026-02-30&to=2026-03-01")).toEqual([
      "`from` must be an existing time, such as 2026-01-31T12:00:00Z.",
    ])
    expect(await refused("from=2026-01-01&to=2026-12-01")).toEqual([
      "`interval` must be longer, or the time shorter: there are more than 190 periods between `from` and `to`.",
    ])
    expect(await refused("from=1970-01-01&to=9998-01-01&interval=hour")).toHaveLength(1)
    expect(await refused("interval=year")).toHaveLength(1)
    expect(await refused("chain=moon")).toEqual(["`chain` must name a network of this service: base-sepolia."])
    expect(await refused("from=now")).toHaveLength(1)
    expect(await refused("tz=%27%3B--")).toHaveLength(1)
  })

  it("of a new merchant has its first steps, and nothing else", async () => {
    const merchantId = await service.merchant("new")
    const overview = await get("overview", "new")
    expect(overview.series).toHaveLength(31)
    expect(overview.series.every(({ figures }: { figures: object[] }) => figures.length === 0)).toBe(true)
    expect(overview).toMatchObject({
      interval: "day",
      tz: "UTC",
      totals: [],
      funnel: { checkouts: 0, converted: 0, successRate: null, paid: 0, medianSecondsToPaid: null },
      previous: { to: overview.from, totals: [] },
      balances: [],
      subscriptions: { active: 0, mrr: [], started: 0, ended: 0, churn: null },
    })
    expect(Object.values(overview.attention)).toEqual(Array(7).fill({ count: 0, ids: [] }))
    const done = ({ checklist }: { checklist: { step: string; done: boolean }[] }) =>
      checklist.flatMap(({ step, done }) => (done ? [step] : []))
    expect(done(overview)).toEqual(["payout_address"])
    await service.call("POST", "/api/console/products", { name: "Film", price: 5 }, { as: "new" })
    expect(done(await get("overview", "new"))).toEqual(["payout_address", "for_sale"])
    const { db } = service.ctx
    const now = service.ctx.now()
    const webhook = { id: `c${"w".repeat(24)}`, url: "https://shop.example", events: '["*"]', active: true }
    const times = { created_at: now, updated_at: now }
    await db
      .insertInto("webhooks")
      .values({ ...webhook, ...times, merchant_id: merchantId, failing_since: now })
      .execute()
    expect(done(await get("overview", "new"))).toEqual(["payout_address", "for_sale", "webhook"])
    expect((await get("overview", "new")).attention.webhooks).toEqual({ count: 1, ids: [webhook.id] })
  })

  it("counts checkouts by when they were made and paid, with the median time to pay, and no agent's", async () => {
    await service.merchant("counted")
    const made: string[] = []
    for (let n = 0; n < 4; n++)
      made.push((await service.call("POST", "/api/console/checkouts", { amount: "5" }, { as: "counted" })).body.id)
    const { db } = service.ctx
    const now = service.ctx.now().getTime()
    const pay = (id = "", ms = 0) =>
      db
        .updateTable("checkout_sessions")
        .set({
          status: "confirmed",
          confirmed_at: new Date(now + ms),
          created_at: new Date(now),
          tx_hash: `0x${"5f".repeat(32)}` as never,
        })
        .where("id", "=", id)
        .execute()
    await pay(made[0], 20_000)
    await pay(made[1], 50_000)
    await pay(made[2], 90_000)
    await db
      .updateTable("checkout_sessions")
      .set({ agent: true })
      .where("id", "=", made[3] ?? "")
      .execute()
    await db
      .updateTable("checkout_sessions")
      .set({ status: "confirmed", confirmed_at: new Date(now), tx_hash: `0x${"5f".repeat(32)}` as never })
      .where("id", "=", made[3] ?? "")
      .execute()
    const to = new Date(now + 3_600_000).toISOString()
    expect((await get(`overview?to=${to}`, "counted")).funnel).toEqual({
      checkouts: 4,
      converted: 3,
      successRate: 0.75,
      paid: 3,
      medianSecondsToPaid: 50,
    })
  })

  it("adds up what subscriptions bring in a month, and how many ended", async () => {
    const merchantId = await service.merchant("club")
    const { db } = service.ctx
    const now = service.ctx.now()
    const before = (days: number) => new Date(now.getTime() - days * DAY_MS)
    const product = async (interval: string, count: number, price: string) => {
      const recurring = { name: "Club", price, billingInterval: interval, billingCount: count }
      const { body } = await service.call("POST", "/api/console/products", recurring, { as: "club" })
      return body.id as string
    }
    let n = 0
    const subscribe = async (product_id: string, status: string, started: number, ended?: number) => {
      const { billing_interval, billing_count } = await db
        .selectFrom("products")
        .select(["billing_interval", "billing_count"])
        .where("id", "=", product_id)
        .executeTakeFirstOrThrow()
      const id = `sub_${`${++n}`.padStart(24, "0")}`
      await db
        .insertInto("subscriptions")
        .values({
          id,
          merchant_id: merchantId,
          chain_id: paperNetwork.chainId,
          product_id,
          billing_interval: billing_interval ?? "month",
          billing_count: billing_count ?? 1,
          trial_days: 0,
          payer: `0x${"b".repeat(40)}` as never,
          started_at: before(started),
          anchor: before(started),
          status: status as "active",
          paid_until: now,
          access_until: now,
          ...(ended === undefined ? {} : { ended_at: before(ended), cancel_reason: "requested" as const }),
          created_at: before(started),
          updated_at: now,
        })
        .execute()
      return id
    }
    const [monthly, yearly, weekly] = [
      await product("month", 1, "10"),
      await product("year", 1, "100"),
      await product("week", 2, "7"),
    ]
    await subscribe(monthly, "active", 100)
    await subscribe(monthly, "payment_due", 5)
    await subscribe(yearly, "active", 100)
    const late = await subscribe(weekly, "past_due", 100)
    await subscribe(monthly, "paused", 100)
    await subscribe(monthly, "canceled", 100, 3)
    await subscribe(monthly, "canceled", 4, 3)
    await subscribe(monthly, "canceled", 100, 60)
    const { subscriptions, attention } = await get("overview", "club")
    expect(subscriptions).toEqual({
      active: 4,
      // 2 × 10 + 100 / 12, rounded down, + 7 × 1461 / 336 / 2, rounded down.
      mrr: [{ chain: "base-sepolia", token: checksummed(usdc), currency: "USDC", decimals: 6, amount: "43.552083" }],
      started: 2,
      ended: 2,
      // Four of those that did not end were there 30 days ago, and one that ended since.
      churn: 2 / 5,
    })
    expect(attention.subscriptions).toEqual({ count: 1, ids: [late] })
  })

  it("is of one network where one is asked for, and of one merchant", async () => {
    const { sub, shop } = await newShop()
    const [change = 0] = changes
    const transfer = { kind: "transfer", value: 7n, token: usdc, at: 0, isSeenFirst: true } as const
    await live(shop, change, [transfer])
    await service.merchant("rival")
    const time = `from=${new Date(change - DAY_MS).toISOString()}&to=${new Date(change + DAY_MS).toISOString()}`
    expect((await get(`overview?${time}&chain=base-sepolia`, sub)).totals).toHaveLength(1)
    expect((await get(`overview?${time}`, "rival")).totals).toEqual([])
    expect((await get("balances", "rival")).data).toEqual([])
    const other = { ...paperNetwork, name: "base" as const, chainId: 8453 }
    service.ctx.chain.networks.push(other)
    const elsewhere = await get(`overview?${time}&chain=base`, sub)
    service.ctx.chain.networks.pop()
    expect([elsewhere.totals, elsewhere.balances]).toEqual([[], []])
  })
})

function withoutZero(sums: Sums): Sums {
  return Object.fromEntries(Object.entries(sums).filter(([, amount]) => amount !== 0n))
}
