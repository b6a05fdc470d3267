/**
 * The search of the console, and each filter of its lists, at 1,000 and at 1,000,000 rows of one merchant, on a Postgres that survives a power
 * cut, through HTTP. Each is asked for what one row has, what half of the rows have, and what none has. `script/bench search`;
 * `BENCH_ROWS` is for a quick try with fewer rows, `--only TEXT` for the questions that contain it
 */
import { cpus } from "node:os"
import { performance } from "node:perf_hooks"
import { parseArgs } from "node:util"
import { sql } from "kysely"
import { type OpenDatabase, openPostgres } from "../server/src/platform/db/open.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { paperNetwork, startService } from "../server/test/service.ts"
import { addRows, allTables, firstPayer, firstSession } from "./rows.ts"

const FEW = 1_000
const MANY = Number(process.env.BENCH_ROWS ?? 1_000_000)
const TIMES = 60
const WARM = 5
const GOAL_MS = 30
const AS = "shop"
const SLUG = "growth"
const MIDDLE = 1_500
/** What one payment and its payout have, where all others have 5.00. */
const RARE = "49.00"

interface Side {
  rows: number
  ask(path: string): Promise<number>
  paths: Record<string, string>
  stop(): Promise<void>
}

const say = (text: string) => process.stdout.write(`${text}\n`)
const at = (values: number[], part: number): number =>
  values.toSorted((a, b) => a - b)[Math.ceil(values.length * part) - 1] ?? Number.NaN

async function start(rows: number): Promise<Side> {
  const postgres = await startPostgres({ fsync: true })
  const database = await openPostgres(postgres.url, error => process.stderr.write(`database: ${error.message}\n`))
  const service = await startService({ database })
  await service.empty()
  const merchantId = await service.merchant(AS)
  const make = async (path: string, body: object) =>
    (await service.call("POST", `/api/console/${path}`, body, { as: AS })).body
  const paywall = await make("paywalls", { name: "Film", price: "0.50" })
  const product = await make("products", { name: "Report", price: "5" })
  const link = await make("payment-links", { title: "Book", amount: "5", slug: SLUG })
  const searched = { productId: product.id, linkId: link.id }
  const owner = {
    merchantId,
    paywallId: paywall.id,
    webhookId: `c${"w".repeat(24)}`,
    token: paperNetwork.token.address,
    searched,
  }
  await addRows(database.background, owner, allTables, 1, rows)
  await addRare(database, rows)
  await database.db
    .insertInto("cursors")
    .values({
      chain_id: 84532,
      block_number: 1n,
      block_hash: `0x${"00".repeat(32)}` as never,
      finalized_number: 1n,
      run_at: new Date(),
    })
    .execute()
  const base = await service.listen()
  const headers = { authorization: `Bearer ${await service.issuer.token(AS)}` }
  const ask = async (path: string) => {
    const from = performance.now()
    const answer = await fetch(`${base}/api/console/${path}`, { headers })
    const text = await answer.text()
    const ms = performance.now() - from
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status} ${text}`)
    return ms
  }
  const get = async (path: string) => (await service.call("GET", `/api/console/${path}`, undefined, { as: AS })).body
  const checkout = await get(`checkouts/${firstSession}`)
  const payout = (await get("payouts?limit=1")).data[0]
  const paths = pathsOf({ hash: checkout.txHash, payTo: checkout.payTo, payout, productId: product.id })
  const stop = async () => {
    await service.stop()
    await postgres.stop()
  }
  return { rows, ask, paths, stop }
}

/** Gives one payment in the middle, and its payout, another amount. */
async function addRare({ background }: OpenDatabase, rows: number): Promise<void> {
  await background.transaction().execute(async tx => {
    await sql`set local session_replication_role = replica`.execute(tx)
    for (const table of ["payments", "payouts"])
      await sql`update ${sql.table(table)} set amount = 49000000
        where id = (select id from ${sql.table(table)} order by created_at offset ${sql.lit(rows >> 1)} limit 1)`.execute(
        tx,
      )
  })
  await sql`vacuum analyze payments, payouts`.execute(background)
}

interface Known {
  hash: string
  payTo: string
  payout: { id: string; recipient: string }
  productId: string
}

/** What is asked, by its name. */
function pathsOf({ hash, payTo, payout, productId }: Known): Record<string, string> {
  const search = (name: string, q: string) => [`search: ${name}`, `search?q=${encodeURIComponent(q)}`]
  const nobody = `0x${"ab".repeat(20)}`
  return Object.fromEntries([
    search("an id", firstSession),
    search("a payout's id", payout.id),
    search("a hash", hash),
    search("a hash of nothing", `0x${"ab".repeat(32)}`),
    search("a payer", firstPayer),
    search("a receiving address", payTo),
    search("the recipient of all payouts", payout.recipient),
    search("an address of nobody", nobody),
    search("an e-mail address", `payer-${MIDDLE}@mail.example`),
    search("a slug", SLUG),
    search("a value that one has", `${MIDDLE}`),
    search("a value that half have", "pro"),
    search("a field that one has", `order:${MIDDLE}`),
    search("a field that half have", "plan:pro"),
    search("the amount of all", "5.00"),
    search("the amount of one", RARE),
    search("an amount of none", "123.45"),
    search("words of nothing", "no such thing"),
    ...[
      "checkouts",
      `checkouts?productId=${productId}`,
      `checkouts?productId=prod_${"a".repeat(24)}`,
      `checkouts?slug=${SLUG}`,
      "checkouts?slug=nothing",
      "checkouts?chain=base-sepolia",
      "checkouts?capture=direct",
      "checkouts?capture=manual",
      `checkouts?customerEmail=payer-${MIDDLE}@mail.example`,
      "checkouts?customerEmail=nobody@mail.example",
      `checkouts?metadata[order]=${MIDDLE}`,
      "checkouts?metadata[order]=0",
      "checkouts?metadata[plan]=pro",
      "checkouts?metadata[plan]=none",
      "checkouts?metadata[cohort]=c7",
      "checkouts?metadata[plan]=basic&metadata[cohort]=c7",
      "checkouts?metadata[plan]=pro&metadata[cohort]=c7",
      `checkouts?productId=${productId}&metadata[cohort]=c7`,
      `checkouts?productId=${productId}&metadata[plan]=basic`,
      "checkouts?status=expired&metadata[plan]=pro",
      `checkouts?metadata[plan]=pro&metadata[order]=${MIDDLE}`,
      "checkouts?from=2026-01-01&to=2026-01-02",
      `checkouts?q=${hash}`,
      `checkouts?q=${firstPayer}`,
      `checkouts?q=${nobody}`,
      `checkouts?q=${MIDDLE}`,
      "checkouts?q=pro",
      "transactions",
      "transactions?chain=base-sepolia",
      "transactions/totals",
      "transactions/totals?from=2026-01-01&to=2026-01-02",
      "transactions/totals?type=payment&status=granted",
      "transactions/totals?exception=late",
      "transactions?exception=late",
      `transactions?amount=${RARE}`,
      "transactions?amount=5.00",
      "transactions?amount=123.45",
      "transactions?type=payment&amount=5.00",
      `transactions?amount=${RARE}&productId=${productId}`,
      `transactions?amount=${RARE}&metadata[cohort]=c7`,
      `transactions/totals?amount=${RARE}`,
      "transactions/totals?amount=5.00",
      `transactions?productId=${productId}`,
      `transactions?productId=prod_${"a".repeat(24)}`,
      `transactions?slug=${SLUG}`,
      "transactions?capture=direct",
      "transactions?capture=manual",
      `transactions?customerEmail=payer-${MIDDLE}@mail.example`,
      `transactions?metadata[order]=${MIDDLE}`,
      "transactions?metadata[plan]=pro",
      "transactions?metadata[plan]=none",
      "transactions?metadata[cohort]=c7",
      "transactions?type=payment&metadata[cohort]=c7",
      `transactions?metadata[plan]=basic&metadata[order]=${MIDDLE + 1}`,
      `events?object=${firstSession}`,
      `events?object=cs_${"a".repeat(24)}`,
      "products?q=re",
      "payment-links?active=true",
      "payouts",
      "payouts?kind=sweep",
      "payouts?kind=return",
      "payouts?state=held",
      "payouts?state=final",
      `payouts/${payout.id}`,
      `payouts/${payout.id}/payments`,
      "payers",
      `payers/${firstPayer}`,
      `payers?q=payer-${MIDDLE}@mail.example`,
      `payments/${firstSession}`,
      `timeline/${payout.id}`,
      "health",
    ].map(path => [
      path
        .replaceAll(productId, "one that half have")
        .replaceAll(/(?<=0x\w{4})\w+|(?<=_)\w{24,}/g, "…")
        .replaceAll("&", " "),
      path,
    ]),
  ])
}

async function measure(only: string): Promise<void> {
  const few = await start(FEW)
  const many = await start(MANY)
  say(
    `${cpus()[0]?.model.trim()}, ${cpus().length} cores, Node ${process.versions.node}; ms of ${TIMES} requests, in turns\n`,
  )
  say(`${"".padEnd(58)}${`${FEW} rows: p50, p95`.padEnd(24)}${`${MANY} rows: p50, p95`.padEnd(26)}ratio of p50`)
  try {
    for (const name of Object.keys(few.paths).filter(name => name.includes(only))) {
      const [small = [], large = []] = await inTurns(few, many, name)
      const ratio = at(large, 0.5) / at(small, 0.5)
      const isSlow = at(large, 0.95) > GOAL_MS
      const shown = [small, large].map(times =>
        `${at(times, 0.5).toFixed(1)}, ${at(times, 0.95).toFixed(1)}`.padEnd(25),
      )
      say(`${name.padEnd(58)}${shown.join("")}${ratio.toFixed(2)}${isSlow ? `  above ${GOAL_MS} ms` : ""}`)
    }
  } finally {
    await few.stop()
    await many.stop()
  }
}

async function inTurns(few: Side, many: Side, name: string): Promise<number[][]> {
  const all: number[][] = [[], []]
  for (let time = 0; time < TIMES + WARM; time++)
    for (const [n, side] of [few, many].entries()) {
      const ms = await side.ask(side.paths[name] ?? "")
      if (time >= WARM) all[n]?.push(ms)
    }
  return all
}

// Processes that were started here end with this process.
for (const name of ["SIGTERM", "SIGINT"] as const) process.once(name, () => process.exit(1))
const { values } = parseArgs({ options: { only: { type: "string" } } })
await measure(values.only ?? "")
process.exit(0)
