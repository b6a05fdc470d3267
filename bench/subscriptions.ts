/**
 * What an invoice costs the job when many subscriptions are due at once, compared with one durable commit of one row on
 * the same Postgres. Also how long `/healthz` and a console list take meanwhile, compared with the same list before.
 * Jobs and API share this process and its pool, which is the worst case. 1,000 and 10,000 subscriptions, or the given
 * numbers.
 */
import { performance } from "node:perf_hooks"
import { setImmediate as turn } from "node:timers/promises"
import { sql } from "kysely"
import { AUDIENCE } from "../server/test/issuer.ts"
import { startPostgres } from "../server/test/postgres.ts"

const SIZES = process.argv.length > 2 ? process.argv.slice(2).map(Number) : [1_000, 10_000]
const FIRST_RUN = 200
const COMMITS = 1_000
const PROBES = 50

const postgres = await startPostgres({ fsync: true })
process.env.DATABASE_URL = postgres.url
const { startService } = await import("../server/test/service.ts")
const { fillSubscriptions } = await import("../server/test/subscriptions.ts")
const { openApp } = await import("../server/src/app.ts")
const { tokenIssuer } = await import("../server/src/account/identity/tokens.ts")
const { advanceSubscriptions } = await import("../server/src/products/subscriptions/advance-subscriptions.ts")

const service = await startService()
const { ctx } = service
// Without checking answers against the OpenAPI document, as the tests' own calls do.
const app = openApp(ctx, tokenIssuer(service.issuer.issuer, AUDIENCE))
const headers = { authorization: `Bearer ${await service.issuer.token("shop")}` }
const say = (text: string) => process.stdout.write(`${text}\n`)
const paths = ["/healthz", "/api/console/subscriptions?limit=100", "/api/console/invoices?limit=100"] as const

/**
 * Fills a shop with `count` subscriptions of one product, paid six days ago, whose next invoice is due to be created
 * now.
 */
async function fill(count: number): Promise<void> {
  await service.empty()
  const shop = await service.merchant("shop")
  const body = { name: "Magazine", price: "5.00", billingInterval: "week" }
  const { id: product } = (await service.call("POST", "/api/console/products", body, { as: "shop" })).body
  await fillSubscriptions(ctx, shop, product, count)
  await sql`vacuum analyze`.execute(ctx.db)
}

/** Milliseconds of one durable commit of one row. */
async function commit(): Promise<number> {
  await sql`create table if not exists bench_rows (n bigint)`.execute(ctx.db)
  const startedAt = performance.now()
  for (let n = 0; n < COMMITS; n++)
    await ctx.db.transaction().execute(async db => void (await sql`insert into bench_rows values (${n})`.execute(db)))
  return (performance.now() - startedAt) / COMMITS
}

type Times = Record<string, number[]>

/** Requests each path in turn, again and again, until `isOver`; returns all times in milliseconds. */
async function probe(isOver: () => boolean): Promise<Times> {
  const times: Times = Object.fromEntries(paths.map(url => [url, []]))
  while (!isOver())
    for (const url of paths) {
      const startedAt = performance.now()
      const { statusCode } = await app.inject({ url, headers })
      if (statusCode !== 200) throw new Error(`${url}: ${statusCode}`)
      times[url]?.push(performance.now() - startedAt)
      await turn()
    }
  return times
}

const at = (values: number[] = [], part: number): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length * part)] ?? Number.NaN

/**
 * Advances everything that is due, as the loop does; returns the milliseconds per invoice, and throws unless all were
 * created.
 */
async function advanceAll(count: number): Promise<number> {
  const startedAt = performance.now()
  while ((await advanceSubscriptions(ctx)) === 0);
  const ms = (performance.now() - startedAt) / count
  const { rows } = await sql<{ n: string }>`select count(*) as n from invoices where sequence = 2`.execute(ctx.db)
  if (Number(rows[0]?.n) !== count) throw new Error(`${rows[0]?.n} invoices were made of ${count}`)
  return ms
}

await fill(FIRST_RUN)
await advanceAll(FIRST_RUN)
let first: number | undefined
for (const size of SIZES) {
  await fill(size)
  const bare = await commit()
  let asked = 0
  const before = await probe(() => asked++ >= PROBES)
  const alone = await advanceAll(size)
  await fill(size)
  let isOver = false
  const probes = probe(() => isOver)
  const probed = await advanceAll(size)
  isOver = true
  const during = await probes
  first ??= alone
  say(`\n${size.toLocaleString("en")} due at once
  an invoice, nobody asking         ${alone.toFixed(2)} ms   ${(alone / bare).toFixed(1)} bare commits of ${bare.toFixed(2)} ms, ${(alone / first).toFixed(2)} of the first size
  an invoice, one caller asking     ${probed.toFixed(2)} ms   ${(probed / alone).toFixed(2)}`)
  for (const url of paths) {
    const p50 = at(during[url], 0.5)
    const p99 = at(during[url], 0.99)
    const idle = at(before[url], 0.5)
    const ratio = (p50 / idle).toFixed(2)
    say(
      `  ${url.padEnd(40)}${idle.toFixed(1)} ms idle, ${p50.toFixed(1)} meanwhile (p99 ${p99.toFixed(1)}), ratio ${ratio}`,
    )
  }
}
await app.close()
await service.stop()
await postgres.stop()
process.exit(0)
