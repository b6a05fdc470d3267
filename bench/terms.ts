/**
 * What the rows and indexes by which checkouts and payments are found add to a checkout that is made, and to a settlement: of checkouts
 * with one field of metadata, and with five and an e-mail address. Two services, one without them, are asked in turns, on a Postgres that
 * survives a power cut. `script/bench terms`; `BENCH_ROWS` is how often, `--only TEXT` for a kind. `--of changes` measures the triggers
 * that note what changed, of a merchant with an endpoint.
 */
import { randomBytes } from "node:crypto"
import { readFileSync } from "node:fs"
import { cpus } from "node:os"
import { performance } from "node:perf_hooks"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { Client } from "undici"
import { settleDue } from "../server/src/ledger/settlement/settle.ts"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { startPayoutRig } from "../server/test/payouts.ts"
import { startPostgres } from "../server/test/postgres.ts"

const TIMES = Number(process.env.BENCH_ROWS ?? 1_000)
const WARM = 100
const AS = "shop"
const say = (text: string) => process.stdout.write(`${text}\n`)
const quantile = (values: readonly number[], q: number) =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * q) - 1] ?? Number.NaN

const postgres = await startPostgres({ fsync: true })
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))

const { values } = parseArgs({
  options: { only: { type: "string", default: "" }, of: { type: "string", default: "terms" } },
})
const isOfChanges = values.of === "changes"

/** A service on a database of its own; without the triggers and indexes that this measures if `drops`. */
async function start(name: string, drops: readonly string[]) {
  const admin = await openPostgres(postgres.url, () => {})
  await sql`create database ${sql.id(name)}`.execute(admin.db)
  await admin.close()
  const url = new URL(postgres.url)
  url.pathname = `/${name}`
  const database = await openPostgres(url.href, error => process.stderr.write(`database: ${error.message}\n`))
  const rig = await startPayoutRig({}, database)
  await rig.empty()
  await rig.service.merchant(AS)
  await rig.sell()
  const { body } = await rig.service.call(
    "POST",
    "/api/console/api-keys",
    { name: "server", scopes: ["read", "checkouts"] },
    { as: AS },
  )
  for (const drop of drops) await sql.raw(`drop ${drop}`).execute(database.db)
  if (isOfChanges)
    await sql`insert into webhooks (id, merchant_id, url, events, active, created_at, updated_at)
      select 'c' || repeat('a', 24), id, 'https://shop.example/hooks', '["*"]', true, now(), now() from merchants`.execute(
      database.db,
    )
  const client = new Client(await rig.service.listen())
  return { rig, client, key: body.key as string }
}
type Side = Awaited<ReturnType<typeof start>>

async function create({ client, key }: Side, terms: object): Promise<{ id: string; ms: number }> {
  const from = performance.now()
  const answer = await client.request({
    path: "/api/checkouts",
    method: "POST",
    headers: { "x-api-key": key, "content-type": "application/json" },
    body: JSON.stringify({ amount: "5", ...terms }),
  })
  const body = (await answer.body.json()) as { id: string }
  if (answer.statusCode !== 201) throw new Error(`${answer.statusCode} ${JSON.stringify(body)}`)
  return { id: body.id, ms: performance.now() - from }
}

/** Milliseconds from a confirmed transfer to the settled checkout. */
async function settle({ rig }: Side, id: string): Promise<number> {
  const { ctx } = rig.service
  const deposit = await ctx.db
    .selectFrom("deposits")
    .selectAll()
    .where("resource_id", "=", id)
    .executeTakeFirstOrThrow()
  const now = ctx.now()
  const hash = `0x${randomBytes(32).toString("hex")}` as never
  await ctx.db
    .insertInto("transfers")
    .values({
      chain_id: rig.network.chainId,
      tx_hash: hash,
      token: rig.token,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: `0x${randomBytes(20).toString("hex")}` as never,
      value: 5_000_000n,
      block_number: 1n,
      block_hash: hash,
      log_index: 0,
      block_time: now,
      state: "confirmed",
      run_at: now,
      created_at: now,
    })
    .execute()
  const from = performance.now()
  await settleDue(ctx, rig.network)
  const ms = performance.now() - from
  const { status } = await ctx.db
    .selectFrom("checkout_sessions")
    .select("status")
    .where("id", "=", id)
    .executeTakeFirstOrThrow()
  if (status !== "confirmed") throw new Error(`the checkout is ${status}`)
  return ms
}

const checkouts = "checkout_sessions"
const added = {
  "of checkouts' metadata": [`trigger ${checkouts}_keep_terms on ${checkouts}`],
  "of payments": [`trigger payments_add_terms on payments`],
  indexes: ["amount", "chain", "email", "payer", "product", "slug"].map(name => `index ${checkouts}_of_${name}`),
}
/** The triggers that note what changed, as migration 0012 makes them. */
const notes = [
  ...readFileSync(new URL("../server/src/platform/db/migrations/0012_changes.sql", import.meta.url), "utf8").matchAll(
    /create trigger (\w+)\s[^;]*?\son (\w+)\s/g,
  ),
].map(([, name, table]) => `trigger ${name} on ${table}`)
const compared: Record<string, string[]> = isOfChanges
  ? { without: notes, "with all": [] }
  : { without: Object.values(added).flat(), "with the triggers": added.indexes, "with all": [] }
const sides: { name: string; side: Side }[] = []
for (const [name, drops] of Object.entries(compared))
  sides.push({ name, side: await start(name.replaceAll(" ", "_"), drops) })
const email = "ada@shop.example"
const kinds: Record<string, () => object> = {
  "no metadata": () => ({}),
  "one field": () => ({ metadata: { order: randomBytes(4).toString("hex") } }),
  "five fields and an e-mail": () => ({
    customerEmail: email,
    metadata: Object.fromEntries(["a", "b", "c", "d", "e"].map(name => [name, randomBytes(4).toString("hex")])),
  }),
}
say(`${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}; ms, ${TIMES} of each in turns`)
for (const [kind, terms] of Object.entries(kinds).filter(([kind]) => kind.includes(values.only))) {
  const all = sides.map(each => ({ ...each, creations: [] as number[], settlements: [] as number[] }))
  for (let n = -WARM; n < TIMES; n++)
    // Each is first as often as second and third.
    for (const i of all.keys()) {
      const each = all[(i + n + all.length * WARM) % all.length]
      if (!each) continue
      const { id, ms } = await create(each.side, terms())
      const settled = await settle(each.side, id)
      if (n < 0) continue
      each.creations.push(ms)
      each.settlements.push(settled)
    }
  say(`\n${kind.padEnd(28)}create: p50      p95    ratio   settle: p50      p95    ratio (the median of the pairs)`)
  const [base] = all
  for (const { name, ...times } of all) {
    const cells = (["creations", "settlements"] as const).flatMap(which => {
      const ratios = times[which].map((ms, i) => ms / (base?.[which][i] ?? Number.NaN))
      return [quantile(times[which], 0.5), quantile(times[which], 0.95), quantile(ratios, 0.5)]
    })
    say(`  ${name.padEnd(28)}${cells.map(ms => ms.toFixed(3).padStart(9)).join("")}`)
  }
}
for (const { side } of sides) {
  await side.client.destroy()
  await side.rig.stop()
}
await postgres.stop()
