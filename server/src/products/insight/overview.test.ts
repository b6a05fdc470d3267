// The overview, the balances and the books' file say the same to the base unit, whatever happened and wherever the clock is.
import fc from "fast-check"
import { parseUnits } from "viem"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Counted, changes, happening, live, loosen, zones } from "../../../test/figures.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { moneyFigures } from "./read-figures.ts"

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
          const time = { from: new Date(change - 3 * DAY_MS), to: new Date(change + 4 * DAY_MS) }
          for (const tz of zones) {
            const query = `from=${time.from.toISOString()}&to=${time.to.toISOString()}&interval=${interval}&tz=${tz}`
            const overview = await get(`overview?${query}`, sub)
            const during = counted.filter(({ at }) => at >= Date.parse(overview.from) && at < Date.parse(overview.to))
            expect(during).toHaveLength(counted.length)
            expect(shownIn(overview.totals)).toEqual(withoutZero(expectedOf(counted)))
            // The books leave out what the chain took back.
            const reversed = counted.filter(({ figure }) => figure === "reversed")
            const books = await booksOf(sub, `?from=${overview.from}&to=${overview.to}`)
            for (const { token, amount } of reversed)
              if (token !== "")
                for (const figure of ["received", "reversed"]) add(books, `${checksummed(token)} ${figure}`, amount)
            expect(shownIn(overview.totals)).toEqual(books)
            for (const [i, period] of overview.series.entries()) {
              const [from, until] = [Date.parse(period.at), Date.parse(overview.series[i + 1]?.at ?? overview.to)]
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
              `overview?from=${overview.to}&to=${new Date(Date.parse(overview.to) + 8 * DAY_MS).toISOString()}&interval=${interval}&tz=${tz}`,
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

function withoutZero(sums: Sums): Sums {
  return Object.fromEntries(Object.entries(sums).filter(([, amount]) => amount !== 0n))
}
