// By hand, once for each release: a life of its own for the service of this very commit, and all its rows into a file, for
// `server/src/platform/db/migrated.test.ts` to bring up to every later version. With Postgres in `DATABASE_URL`:
// DUMP=server/test/fixtures/database-NNNN.jsonl.gz npx vitest run server/test/make-dump.test.ts
import { existsSync, writeFileSync } from "node:fs"
import { gzipSync } from "node:zlib"
import { sql } from "kysely"
import { describe, expect, it } from "vitest"
import type { Address } from "../src/platform/chain/hex.ts"
import { type Life, lifeOf } from "./life.ts"
import { type PayoutRig, startPayoutRig } from "./payouts.ts"
import { startReceiver } from "./receiver.ts"
import { relaysOn } from "./relays.ts"

const { DUMP } = process.env

// biome-ignore lint/suspicious/noExplicitAny: what a helper of another commit has.
type Any = any
/** A helper that an older commit may not have. */
const helper = async (name: string): Promise<Any> => {
  const file = new URL(name, import.meta.url)
  return existsSync(file) ? await import(file.href) : undefined
}

/** All rows, one a line, without nulls: as Postgres writes them, as numbers are longer than a double's. */
async function rowsOf({ ctx: { db } }: PayoutRig["service"]): Promise<string[]> {
  const { rows: tables } = await sql<{ name: string }>`select tablename as name from pg_tables
    where schemaname = 'public' and tablename <> 'migrations' order by 1`.execute(db)
  const lines: string[] = []
  for (const { name } of tables) {
    const { rows } = await sql<{ row: string }>`
      select json_strip_nulls(row_to_json(t))::text as row from ${sql.table(name)} t order by 1`.execute(db)
    lines.push(...rows.map(({ row }) => `{"table":"${name}","row":${row}}`))
  }
  return lines
}

/** Everything that a merchant configures, each thing once. */
async function configure(service: PayoutRig["service"], url: string): Promise<void> {
  const make = async (path: string, body: object, method: "POST" | "PUT" = "POST") => {
    const answer = await service.call(method, `/api/console/${path}`, body, { as: "shop" })
    expect(answer.status, `${path}: ${JSON.stringify(answer.body)}`).toBeLessThan(300)
    return answer.body
  }
  await make("webhooks", { url, events: ["*"] })
  await make("api-keys", { name: "Server" })
  const { id: productId } = await make("products", { name: "Report", price: "5.00" })
  await make("payment-links", { title: "Report", slug: "report", productId })
  await make("checkouts", { productId, metadata: { order: "7" } })
  await make("settings", { name: "Shop" }, "PUT")
  const routes = [{ method: "GET", path: "/cities", price: "0.01" }]
  const { document } = service as Any
  if (document.paths["/api/console/bundles"])
    await make("bundles", { name: "API", originUrl: "https://api.example", routes, originHeaders: { "x-key": "k" } })
}

/** Payments that need a decision, two of them decided, and one that is topped up. */
async function exceptions(rig: PayoutRig, life: Life): Promise<void> {
  const { service } = rig
  for (const decide of ["accept", "return", undefined] as const) {
    const shop = await rig.sell()
    await life.send(shop.deposit.address, 300_000n)
    await life.verify()
    await life.mine()
    // Money that nobody submitted waits ten minutes for its hash.
    await life.advance(11 * 60_000)
    await life.verify()
    const { rows } = await sql<{ id: string }>`
      select id from payments where resource_id = ${shop.id} and status = 'open'`.execute(service.ctx.db)
    expect(rows).toHaveLength(1)
    if (!decide) continue
    const path = `/api/console/payments/${rows[0]?.id}/${decide}`
    const to = decide === "return" ? { address: rig.anvil.accounts[3].address } : {}
    const answer = await service.call("POST", path, to, { as: "shop" })
    expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  }
  await life.settle()
}

/** Gasless checkouts: one that is paid, one that waits, and one that nobody pays. */
async function relays(rig: PayoutRig, life: Life): Promise<void> {
  const on = relaysOn(rig)
  for (const paid of [true, false]) {
    const session = await on.start()
    const answer = await on.submit(session, await on.sign(await on.buyer(), session))
    expect(answer.status, JSON.stringify(answer.body)).toBe(200)
    if (paid) for (let i = 0; i < 3; i++) await on.round().then(() => life.mine().then(on.look))
  }
  await on.start()
}

/** Reserved payments: captured and refunded, voided, and one that is reserved. */
async function escrows(rig: PayoutRig, on: Any): Promise<void> {
  const ask = async (path: string, body: object) => {
    const answer = await rig.service.call("POST", `/api/console/payments/${path}`, body, { as: "shop" })
    expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
  }
  const [kept, undone] = [
    await on.paid("5.00", "manual"),
    await on.paid("3.00", "manual"),
    await on.paid("2.00", "manual"),
  ]
  await ask("capture", { sessionId: kept.id, amount: "4.00" })
  await ask("void", { sessionId: undone.id })
  await on.settle()
  await on.allow(1_000_000n)
  await ask("refund", { sessionId: kept.id, amount: "1.00", reason: "Late" })
  await on.settle()
  await ask("refund", { sessionId: kept.id, amount: "2.00" })
}

/** A subscription that was paid twice, and has an open invoice. */
async function subscriptions(rig: PayoutRig, life: Life, advance: (ctx: Any) => Promise<unknown>): Promise<void> {
  const { service } = rig
  const { ctx } = service
  const product = { name: "Magazine", price: "5.00", billingInterval: "month" }
  const { body } = await service.call("POST", "/api/console/products", product, { as: "shop" })
  await service.call("POST", "/api/console/checkouts", { productId: body.id }, { as: "shop" })
  for (const days of [0, 32, 31]) {
    await life.advance(days * 86_400_000)
    await life.verify()
    for (let i = 0; i < 3; i++) await advance(ctx)
    const open = await sql<{
      address: Address
    }>`select d.address from checkout_sessions s join deposits d on d.resource_id = s.id
      join invoices i on i.session_id = s.id where s.status = 'pending' order by s.created_at desc limit 1`.execute(
      ctx.db,
    )
    if (!open.rows[0] || days === 31) continue
    await life.send(open.rows[0].address, 5_000_000n)
    await life.mine()
    await life.verify()
    await life.advance(11 * 60_000)
    await life.verify()
    await advance(ctx)
  }
  await life.settle()
}

describe.runIf(DUMP)("a dump", () => {
  it("is made of all that the service does", async () => {
    const rig = await startPayoutRig()
    const life = lifeOf(rig)
    const receiver = await startReceiver()
    const escrow = await (await helper("./escrow.ts"))?.escrowsOn(rig)
    await relaysOn(rig).begin()
    await escrow?.begin()
    await rig.service.merchant("other")
    await configure(rig.service, receiver.url)
    const billing = await helper("../src/products/subscriptions/advance-subscriptions.ts")
    if (billing) await subscriptions(rig, life, billing.advanceSubscriptions)
    await life.live()
    await exceptions(rig, life)
    if (escrow) await escrows(rig, escrow)
    await relays(rig, life)
    const lines = await rowsOf(rig.service)
    writeFileSync(DUMP ?? "", gzipSync(`${lines.join("\n")}\n`, { level: 9 }))
    await receiver.stop()
    await rig.stop()
  })
})
