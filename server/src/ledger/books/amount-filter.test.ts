// The filter for an exact amount: over all kinds of money, beside the other filters, and on networks whose tokens differ in decimals.
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { ids, prepare, service, startEverything, stopEverything } from "../../../test/everything.ts"
import { paperNetwork } from "../../../test/service.ts"
import { networkFacts } from "../../platform/chain/network-facts.ts"
import { settlementAmounts } from "./amount-filter.ts"
import { type Filter, transactions } from "./read-transactions.ts"

const token = paperNetwork.token.address
const foreign = `0x${"71".repeat(20)}`
const pay = (letter: string) => `pay_${letter.repeat(24)}`
/** Payments by what distinguishes them, the newest first. */
const made = {
  exact: { id: pay("e"), amount: "49000000", token },
  again: { id: pay("g"), amount: "49000000", token },
  more: { id: pay("m"), amount: "49000001", token },
  foreign: { id: pay("f"), amount: "49000000", token: foreign },
  whole: { id: pay("w"), amount: `49${"0".repeat(18)}`, token, chain_id: 8453 },
  few: { id: pay("x"), amount: "49000000", token, chain_id: 8453 },
}
const SWEEP = "5b8f2c1e-5d7a-4e0f-9b3c-6d8a1e2f4b5c"
const term = sql`md5('capture:manual')::uuid`

/** Runs statements without triggers and foreign keys, which would ask for the rest of a payment. */
const plainly = (run: (db: typeof service.ctx.db) => Promise<unknown>) =>
  service.ctx.db.transaction().execute(async tx => {
    await sql`set local session_replication_role = replica`.execute(tx)
    await run(tx)
  })

const clone = (db: typeof service.ctx.db, table: string, of: string, changes: object) =>
  sql`insert into ${sql.table(table)} select (jsonb_populate_record(p, ${JSON.stringify(changes)}::jsonb)).*
    from ${sql.table(table)} p where id::text = ${of}`.execute(db)

beforeAll(async () => {
  await startEverything()
  await prepare()
  await plainly(async db => {
    for (const [n, row] of Object.values(made).entries())
      await clone(db, "payments", pay("b"), { ...row, created_at: new Date(Date.UTC(2026, 0, 20 - n)) })
    const sweep = { id: SWEEP, kind: "sweep", lane: "payout", escrow_id: null, relay_by: null, source_key: "sweep:1" }
    const { rows } = await sql<{ id: string }>`select id::text from payouts where kind = 'capture'`.execute(db)
    await clone(db, "payouts", rows[0]?.id ?? "", {
      ...sweep,
      amount: "1234567000000",
      deposit_id: 1,
      reserved: true,
      nonce: 77,
    })
  })
})
afterAll(stopEverything)

const call = (path: string) => service.call("GET", `/api/console/${path}`, undefined, { as: "shop" })
async function found(query: string): Promise<string[]> {
  const { status, body } = await call(`transactions?${query}`)
  expect(status, JSON.stringify(body)).toBe(200)
  expect(body.total).toBe(body.data.length)
  return body.data.map(({ id }: { id: string }) => id)
}

describe("an exact amount", () => {
  it("finds incoming and outgoing money of each kind, and no other token's", async () => {
    // Another network's rows can't be shown by a service that no longer serves it.
    await plainly(db => sql`delete from payments where chain_id = 8453`.execute(db))
    const all = (await call("transactions")).body.data as { id: string; type: string; amount: string; token: string }[]
    const ours = all.filter(row => row.token.toLowerCase() === token)
    expect(new Set(ours.map(({ type }) => type))).toEqual(new Set(["payment", "agent", "sweep", "capture", "refund"]))
    for (const { amount } of ours)
      expect(await found(`amount=${amount}`), amount).toEqual(
        ours.filter(row => row.amount === amount).map(({ id }) => id),
      )
    // As many base units, of a token that has no known decimals.
    const others = all.filter(row => !ours.includes(row))
    expect(others.map(({ id }) => id)).toEqual([made.foreign.id])
  })

  it("means the same with and without zeros, and no more than it says", async () => {
    const both = [made.exact.id, made.again.id]
    for (const amount of ["49", "49.0", "49.00", "49.000000"]) expect(await found(`amount=${amount}`)).toEqual(both)
    expect(await found("amount=49.000001")).toEqual([made.more.id])
    for (const amount of ["48.999999", "4.9", "490", "123.45", "1000000.01", "9".repeat(30)])
      expect(await found(`amount=${amount}`), amount).toEqual([])
    // More than one payment may ask for.
    expect(await found("amount=1234567")).toEqual([`po_${SWEEP.replaceAll("-", "")}`])
  })

  it("goes with the other filters", async () => {
    const both = [made.exact.id, made.again.id]
    for (const query of ["chain=base-sepolia", "type=payment", "status=granted", "from=2026-01-19", "to=2026-01-21"])
      expect(await found(`amount=49&${query}`), query).toEqual(both)
    expect(await found("amount=49&from=2026-01-20")).toEqual([made.exact.id])
    expect(await found(`amount=49&q=${made.again.id}`)).toEqual([made.again.id])
    for (const query of ["type=sweep", "status=open", "exception=late", `productId=${ids.products}`])
      expect(await found(`amount=49&${query}`), query).toEqual([])
  })

  it("is listed in pages, newest first", async () => {
    const { body: first } = await call("transactions?amount=49&limit=1")
    expect([first.data[0].id, first.total]).toEqual([made.exact.id, 2])
    const { body: second } = await call(`transactions?amount=49&limit=1&after=${first.next}`)
    expect([second.data[0].id, second.next]).toEqual([made.again.id, undefined])
  })

  it.runIf(onPostgres)("is found by the index of each kind of money", async () => {
    const merchantId = await service.merchant("shop")
    const query = transactions(service.ctx, merchantId, { amount: "123.45" }).orderBy("created_at", "desc").limit(50)
    const plan = await service.ctx.db.transaction().execute(async tx => {
      await sql`analyze`.execute(tx)
      // The planner is to see a million rows, which it takes as rows in each page of the real file.
      await sql`update pg_class set reltuples = 1000000, relpages = 1 where relnamespace = 'public'::regnamespace and relkind in ('r', 'i')`.execute(
        tx,
      )
      const { rows } = await sql`explain (format json) ${query}`.execute(tx)
      await sql`analyze`.execute(tx)
      return JSON.stringify(rows)
    })
    const indexes = new Set([...plan.matchAll(/"Index Name":"(\w+_amount)"/g)].map(([, name]) => name))
    expect(indexes).toEqual(
      new Set([
        "payments_of_amount",
        "escrows_of_amount",
        "settlements_of_amount",
        "payouts_of_amount",
        "payouts_of_call_amount",
        "refunds_of_amount",
      ]),
    )
  })

  it("is summed, and exported", async () => {
    const { body } = await call("transactions/totals?amount=49.00")
    expect(body).toMatchObject({ total: 2, data: [{ type: "payment", status: "granted", count: 2, amount: "98.00" }] })
    expect((await call("transactions/totals?amount=123.45")).body).toEqual({ total: 0, data: [] })
    const lines = ((await call("transactions.csv?amount=49.00")).body as string).trim().split("\r\n")
    expect(lines.slice(1).map(line => line.split(",")[0])).toEqual([made.exact.id, made.again.id])
  })

  it("goes with what checkouts have, whichever is rarer", async () => {
    const merchantId = await service.merchant("shop")
    const mark = ({ id }: { id: string }) =>
      sql`insert into transaction_terms select merchant_id, ${term}, created_at, id from payments where id = ${id}`.execute(
        service.ctx.db,
      )
    await mark(made.exact)
    expect(await found("amount=49&capture=manual")).toEqual([made.exact.id])
    expect(await found("amount=49.000001&capture=manual")).toEqual([])
    await mark(made.more)
    expect(await found("amount=49.000001&capture=manual")).toEqual([made.more.id])
    expect(await found("amount=123.45&capture=manual")).toEqual([])
    expect((await call("transactions/totals?amount=49&capture=manual")).body.total).toBe(1)
    // Both match too many.
    await plainly(async db => {
      await sql`insert into transaction_terms select ${merchantId}, ${term}, now() - n * interval '1 second', 'pay_x' || n
        from generate_series(1, 2001) n`.execute(db)
      await sql`insert into payments select (jsonb_populate_record(p, jsonb_build_object('id', 'pay_y' || n, 'amount', '8000000', 'token', ${token}::text))).*
        from payments p, generate_series(1, 2001) n where id = ${pay("b")}`.execute(db)
    })
    expect(await found("amount=49&capture=manual")).toEqual([made.exact.id])
    for (const list of ["transactions", "transactions.csv", "transactions/totals"]) {
      const { status, body } = await call(`${list}?amount=8&capture=manual`)
      expect([status, body.error], list).toEqual([400, "VALIDATION_ERROR"])
    }
    await plainly(async db => {
      await sql`delete from payments where id like 'pay_y%'`.execute(db)
      await sql`delete from transaction_terms where transaction_id like 'pay_x%'`.execute(db)
    })
  })

  it.each([
    ["", "must be a decimal number such as 49.00"],
    ["abc", "must be a decimal number such as 49.00"],
    ["-1", "must be a decimal number such as 49.00"],
    ["%2B1", "must be a decimal number such as 49.00"],
    ["1e3", "must be a decimal number such as 49.00"],
    ["1,5", "must be a decimal number such as 49.00"],
    ["0x10", "must be a decimal number such as 49.00"],
    ["007", "must be a decimal number such as 49.00"],
    ["1.", "must be a decimal number such as 49.00"],
    ["%2049", "must be a decimal number such as 49.00"],
    ["9".repeat(31), "must be a decimal number such as 49.00"],
    ["1.1234567", "has more than 6 decimals"],
    ["0", "must be above 0"],
    ["0.000000", "must be above 0"],
    ["9".repeat(51), "must be a decimal number such as 49.00"],
    ["1&amount=2", ""],
  ])("refuses %s", async (amount, why) => {
    for (const list of ["transactions", "transactions.csv", "transactions/totals"]) {
      const { status, body } = await call(`${list}?amount=${amount}`)
      expect([status, body.error, body.details?.[0]?.path], `${list} ${JSON.stringify(body)}`).toEqual([
        400,
        "VALIDATION_ERROR",
        "amount",
      ])
      expect(body.details[0].message).toContain(why)
    }
  })
})

describe("networks whose tokens differ in decimals", () => {
  const other = {
    ...paperNetwork,
    name: "base" as const,
    chainId: networkFacts.base.chainId,
    token: { ...paperNetwork.token, decimals: 18 },
  }
  const networks = [paperNetwork, other]

  it("each have their own amount in base units", () => {
    expect(settlementAmounts(networks, "49")).toEqual([
      { amount: 49n * 10n ** 18n, networks: [other] },
      { amount: 49_000_000n, networks: [paperNetwork] },
    ])
    expect(settlementAmounts(networks, "0.0000001")).toEqual([{ amount: 10n ** 11n, networks: [other] }])
    expect(settlementAmounts([paperNetwork, paperNetwork], "49")).toHaveLength(1)
    expect(() => settlementAmounts(networks, `0.${"0".repeat(18)}1`)).toThrow("has more than 18 decimals")
  })

  it("are each searched for theirs", async () => {
    await plainly(async db => {
      for (const [n, row] of [made.whole, made.few].entries())
        await clone(db, "payments", pay("b"), { ...row, created_at: new Date(Date.UTC(2026, 0, 16 - n)) })
    })
    const merchantId = await service.merchant("shop")
    const of = async (filter: Filter) => {
      const ctx = { ...service.ctx, chain: { networks } }
      const rows = await transactions(ctx as never, merchantId, filter)
        .orderBy("created_at", "desc")
        .execute()
      return rows.map(({ id }) => id)
    }
    expect(await of({ amount: "49" })).toEqual([made.exact.id, made.again.id, made.whole.id])
    expect(await of({ amount: "49", chain: "base" })).toEqual([made.whole.id])
    expect(await of({ amount: "49", chain: "base-sepolia" })).toEqual([made.exact.id, made.again.id])
    expect(await of({ amount: "0.000000000049" })).toEqual([made.few.id])
    await expect(of({ amount: "0.0000001", chain: "base-sepolia" })).rejects.toMatchObject({ code: "VALIDATION_ERROR" })
  })
})
