/**
 * What a merchant's lists and a round of the verification cost with 100,000 open and 1,000,000 closed sessions of other
 * merchants, as ratios to the same with the merchant alone (1,000 sessions), in one run on one Postgres. Goal: at most
 * 1.5.
 */
import { performance } from "node:perf_hooks"
import { type RawBuilder, sql } from "kysely"
import { AUDIENCE } from "../server/test/issuer.ts"
import { ScriptedChain, startNode } from "../server/test/node.ts"
import { startPostgres } from "../server/test/postgres.ts"

const OWN = 1_000
const OPEN = 100_000
const CLOSED = 1_000_000
/** Sessions of each other merchant. */
const EACH = 1_000
const RUNS = 30

const postgres = await startPostgres({ fsync: true })
process.env.DATABASE_URL = postgres.url
const { paperNetwork, startService } = await import("../server/test/service.ts")
const { openApp } = await import("../server/src/app.ts")
const { tokenIssuer } = await import("../server/src/account/identity/tokens.ts")
const { newEndpoint } = await import("../server/src/platform/chain/endpoints.ts")
const { ensureCursor } = await import("../server/src/ledger/scanner/scan-round.ts")
const { verifyRound } = await import("../server/src/ledger/settlement/verify-payments.ts")
const { checkDormantDeposits, makeDepositsDormant } = await import(
  "../server/src/ledger/scanner/check-dormant-deposits.ts"
)

const service = await startService()
const { db } = service.ctx
const chain = new ScriptedChain(service.ctx.now())
const node = await startNode(chain)
const network = { ...paperNetwork, endpoints: [newEndpoint("base-sepolia", node.url)] }
service.ctx.chain.networks.splice(0, 1, network)
const shop = await service.merchant("shop")
await ensureCursor(service.ctx, network)
const say = (text: string) => process.stdout.write(`${text}\n`)

/** Inserts sessions with their addresses and, where they are closed, with transfer, payment and claim. */
async function fill(prefix: string, count: number, status: "pending" | "confirmed", merchant?: string): Promise<void> {
  const name = sql.lit(prefix)
  const owner = merchant === undefined ? sql`('mer_' || ${name} || (i / ${sql.lit(EACH)}))` : sql.lit(merchant)
  const hex = (width: number) => sql`('0x' || lpad(md5(${name} || i), ${sql.lit(width)}, '0'))`
  const address = sql`('0x' || substr(md5(${name} || i) || md5(i || ${name}), 1, 40))`
  const session = sql`('cs_' || lpad(${name} || i, 24, '0'))`
  const payment = sql`('pay_' || lpad(${name} || i, 24, '0'))`
  const numbers = sql`generate_series(0, ${sql.lit(count - 1)}) as i`
  const at = sql`now() - make_interval(secs => 86400 + i)`
  const factory = sql.lit(paperNetwork.depositFactory)
  const token = sql.lit(paperNetwork.token.address)
  const closed = status === "confirmed"
  const ifClosed = (value: RawBuilder<unknown>) => (closed ? value : sql`null`)
  if (merchant === undefined)
    await sql`insert into merchants (id, name, created_at)
      select distinct ${owner}, '', now() from ${numbers}`.execute(db)
  await sql`insert into checkout_sessions (id, merchant_id, chain_id, amount, currency, status, exception, received,
      tx_hash, payer, confirmed_at, expires_at, run_at, created_at, updated_at)
    select ${session}, ${owner}, 84532, 5000000, 'USDC', ${sql.lit(status)},
      ${ifClosed(sql`case when i % 50 = 0 then 'overpaid' end`)}, ${sql.lit(closed ? 5_000_000 : 0)}, ${ifClosed(hex(64))},
      ${ifClosed(address)}, ${ifClosed(at)}, ${closed ? at : sql`now() + interval '20 days'`},
      ${closed ? sql`null::timestamptz` : sql`now() + interval '20 days'`}, ${at}, ${at} from ${numbers}`.execute(db)
  await sql`insert into deposits (chain_id, address, factory, salt, owner, approver, payees_hash, open_after_s, resource_id,
      created_at, watched, watched_until, watched_number, dormant_since, check_at)
    select 84532, ${address}, ${factory}, ${hex(64)}, ${factory}, ${factory}, '0x' || repeat('0', 64), 1, ${session}, ${at}, false, ${at}, 1,
      now() - interval '2 days', now() + interval '1 hour' from ${numbers}`.execute(db)
  if (!closed) return
  await sql`insert into transfers (chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number,
      block_hash, log_index, block_time, state, created_at)
    select 84532, ${hex(64)}, ${token}, d.address, 0, d.id, ${address}, 5000000, i, ${hex(64)}, 0, ${at}, 'final', ${at}
    from ${numbers} join deposits d on d.resource_id = ${session}`.execute(db)
  await sql`insert into payments (id, merchant_id, resource_id, chain_id, payer, amount, token, tx_hash, status, exception,
      created_at, updated_at)
    select ${payment}, ${owner}, ${session}, 84532, ${address}, 5000000, ${token}, ${hex(64)}, 'granted',
      case when i % 50 = 0 then 'overpaid' end, ${at}, ${at} from ${numbers}`.execute(db)
  await sql`insert into claims (transfer_id, payment_id)
    select t.id, ${payment} from ${numbers} join deposits d on d.resource_id = ${session}
      join transfers t on t.deposit_id = d.id`.execute(db)
}

// Without checking answers against the OpenAPI document, as the tests' own calls do.
const app = openApp(service.ctx, tokenIssuer(service.issuer.issuer, AUDIENCE))
const headers = { authorization: `Bearer ${await service.issuer.token("shop")}` }
const get = (url: string) => async (): Promise<void> => {
  const { statusCode } = await app.inject({ url, headers })
  if (statusCode !== 200) throw new Error(`${url}: ${statusCode}`)
}
const round = async (): Promise<void> => {
  chain.mine(1)
  await sql`update cursors set run_at = ${new Date(0)}`.execute(db)
  await verifyRound(service.ctx, network)
}

async function medians(measured: Record<string, () => Promise<void>>): Promise<Record<string, number>> {
  const times: Record<string, number[]> = {}
  for (let run = 0; run < RUNS; run++)
    for (const [name, work] of Object.entries(measured)) {
      const start = performance.now()
      await work()
      times[name] = [...(times[name] ?? []), performance.now() - start]
    }
  return Object.fromEntries(
    Object.entries(times).map(([name, list]) => [name, list.sort((a, b) => a - b)[Math.floor(RUNS / 2)] ?? 0]),
  )
}

await fill("own", OWN, "confirmed", shop)
const { tx_hash: hash } = await db
  .selectFrom("payments")
  .select("tx_hash")
  .where("id", "=", `pay_${"own5".padStart(24, "0")}`)
  .executeTakeFirstOrThrow()
const measured = {
  "list of checkouts": get("/api/console/checkouts?limit=100"),
  "checkouts, confirmed": get("/api/console/checkouts?status=confirmed&limit=100"),
  "checkouts, overpaid": get("/api/console/checkouts?exception=overpaid&limit=100"),
  "list of transactions": get("/api/console/transactions?limit=100"),
  "transactions, granted": get("/api/console/transactions?status=granted&limit=100"),
  "transactions by hash": get(`/api/console/transactions?q=${hash}`),
  "exceptional payments": get("/api/console/payments?limit=100"),
  "transactions as CSV": get("/api/console/transactions.csv"),
  "a round, nothing new": round,
}
await sql`vacuum analyze`.execute(db)
await medians(measured)
const alone = await medians(measured)
say(`filling in ${OPEN} open and ${CLOSED} closed sessions of others ...`)
await fill("open", OPEN, "pending")
await fill("closed", CLOSED, "confirmed")
await sql`vacuum analyze`.execute(db)
await medians(measured)
const among = await medians(measured)

say(`\n${"medians".padEnd(26)}${"alone".padStart(10)}${"among 1.1 M".padStart(14)}${"ratio".padStart(8)}`)
for (const name of Object.keys(measured)) {
  const a = alone[name] ?? 0
  const b = among[name] ?? 0
  const cells = [`${a.toFixed(2)} ms`.padStart(10), `${b.toFixed(2)} ms`.padStart(14), (b / a).toFixed(2).padStart(8)]
  say(name.padEnd(26) + cells.join(""))
}

node.calls = 0
await round()
say(`\ncalls of a round: ${node.calls}`)
await sql`update deposits set check_at = now() - interval '1 minute' where id in (select d.id from deposits d
  join checkout_sessions s on s.id = d.resource_id where s.status = 'pending' limit 10000)`.execute(db)
node.calls = 0
node.hook = (method, params) => (method === "eth_call" ? noBalances(params) : undefined)
let start = performance.now()
await checkDormantDeposits(service.ctx, network)
say(`10,000 dormant addresses: ${node.calls} calls, ${Math.round(performance.now() - start)} ms`)
start = performance.now()
await makeDepositsDormant(service.ctx, network)
say(`cooling, nothing to cool: ${(performance.now() - start).toFixed(1)} ms`)

/** The answer of aggregate3 with a balance of zero for each address. */
function noBalances(params: never[]): string {
  const [{ data }] = params as unknown as [{ data: string }]
  const count = Number.parseInt(data.slice(10 + 64, 10 + 128), 16)
  const word = (n: number) => n.toString(16).padStart(64, "0")
  const offsets = Array.from({ length: count }, (_, i) => word(32 * count + 128 * i)).join("")
  return `0x${word(32)}${word(count)}${offsets}${(word(1) + word(64) + word(32) + word(0)).repeat(count)}`
}

say("\nplans:")
const newest = sql`order by created_at desc, id desc limit 100`
const plans = {
  "list of transactions": sql`select * from transactions where merchant_id = ${shop} ${newest}`,
  "list of checkouts": sql`select * from checkout_sessions where merchant_id = ${shop} ${newest}`,
  "checkouts, confirmed": sql`select * from checkout_sessions where merchant_id = ${shop} and status = 'confirmed' ${newest}`,
  "transactions, granted": sql`select * from transactions where merchant_id = ${shop} and status = 'granted' ${newest}`,
  "transactions by hash": sql`select * from transactions where merchant_id = ${shop} and tx_hash = ${hash}`,
  "sessions due": sql`select id from checkout_sessions where chain_id = 84532 and run_at <= now() order by run_at limit 500`,
  "addresses in the scan": sql`select id from deposits where chain_id = 84532 and watched = true order by id`,
}
for (const [name, query] of Object.entries(plans)) {
  const explained = await sql<{ "QUERY PLAN": string }>`explain ${query}`.execute(db)
  const scans = explained.rows.map(each => each["QUERY PLAN"]).filter(line => /Scan/.test(line))
  say(`  ${name.padEnd(24)}${scans.map(line => line.trim().replace(/ +\(cost.*/, "")).join("; ")}`)
}

await app.close()
await service.stop()
await node.stop()
await postgres.stop()
