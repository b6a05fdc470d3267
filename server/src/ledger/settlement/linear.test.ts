// What a flood costs is counted here, in statements and rows, because time depends on the machine; `script/bench dust` measures it.
import { type KyselyPlugin, sql } from "kysely"
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Row } from "../../platform/db/schema.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { settleDue } from "./settle.ts"

/** What one transaction may read of one flooded address, and how many statements it may take. */
const MAX_ROWS = 12_000
const MAX_STATEMENTS = 80

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
afterEach(() => vi.restoreAllMocks())
beforeEach(async () => {
  // What is read and written bounds a round here, not its time.
  vi.spyOn(performance, "now").mockReturnValue(performance.now())
  await service.empty()
  await service.merchant("shop")
})

async function made(path: string, body: object): Promise<Row<"deposits">> {
  const { id } = (await service.call("POST", `/api/console/${path}`, body, { as: "shop" })).body
  return await service.ctx.db.selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
}

async function invoiced(): Promise<Row<"deposits">> {
  const product = { name: "Magazine", price: "5.00", billingInterval: "month" }
  const { id } = (await service.call("POST", "/api/console/products", product, { as: "shop" })).body
  return await made("checkouts", { productId: id })
}

const arrive = (deposit: Row<"deposits">, n: number, from: "one" | "many") =>
  sql`insert into transfers (chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number,
      block_hash, log_index, block_time, state, run_at, created_at)
    select ${paperNetwork.chainId}, '0x' || lpad(to_hex(n), 64, '0'), ${paperNetwork.token.address}, ${deposit.address}, 0, ${deposit.id},
      '0x' || lpad(case when ${from} = 'many' then to_hex(n) else 'a' end, 40, '0'), 1, 1, '0x' || repeat('1', 64), n, at, 'confirmed', at, at
    from generate_series(1, ${n}::int) n, (values (${service.ctx.now()}::timestamptz)) as t (at)`.execute(
    service.ctx.db,
  )

/** Settles all that is due, now and when what nobody submitted is decided; returns what each round read and ran. */
async function settleAll(): Promise<{ statements: number; rows: number }[]> {
  const rounds: { statements: number; rows: number }[] = []
  for (const afterMs of [0, 11 * 60_000]) {
    service.advance(afterMs)
    for (;;) {
      const round = { statements: 0, rows: 0 }
      const counting: KyselyPlugin = {
        transformQuery: ({ node }) => {
          round.statements++
          return node
        },
        transformResult: async ({ result }) => {
          round.rows += result.rows.length
          return result
        },
      }
      if ((await settleDue({ ...service.ctx, db: service.ctx.db.withPlugin(counting) }, paperNetwork)) === 0) break
      rounds.push(round)
    }
  }
  return rounds
}

const settled = async () => {
  const { rows } = await sql<{ n: number }>`select count(*)::int as n from transfers where run_at is null`.execute(
    service.ctx.db,
  )
  return rows[0]?.n
}

it.each([
  ["one sender at a checkout", () => made("checkouts", { amount: "5" }), "one"],
  ["as many senders at a checkout", () => made("checkouts", { amount: "5" }), "many"],
  ["one sender at an invoice", invoiced, "one"],
  ["one sender at a paywall", () => made("paywalls", { name: "a", price: "5" }), "one"],
] as const)(
  "dust of %s: no round reads or runs more, however much there is, and rounds grow with it",
  async (_, at, from) => {
    const deposit = await at()
    await arrive(deposit, 12_000, from)
    const rounds = await settleAll()
    expect(rounds.length).toBeLessThanOrEqual(12_000 / 5_000 + 2)
    for (const { statements, rows } of rounds) {
      expect(rows).toBeLessThan(MAX_ROWS)
      expect(statements).toBeLessThan(MAX_STATEMENTS)
    }
    expect(await settled()).toBe(12_000)
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  },
)

it("dust of many senders at a paywall: each costs as much as the first", async () => {
  const cost = async (n: number) => {
    await service.empty()
    await service.merchant("shop")
    await arrive(await made("paywalls", { name: "a", price: "5" }), n, "many")
    const rounds = await settleAll()
    expect(await settled()).toBe(n)
    return rounds.reduce((sum, { statements, rows }) => sum + statements + rows, 0) / n
  }
  const few = await cost(20)
  expect(await cost(320)).toBeLessThan(1.1 * few)
})
