/**
 * How long a merchant waits for the CSV of a million rows, beside the database's own `COPY … TO STDOUT` of the same rows, and what memory the
 * process that makes it takes at most. The server and a Postgres that survives a power cut are processes of their own; the reader throws
 * away what it reads. `script/bench exports [--against COMMIT]`; `BENCH_ROWS` is for a look with fewer
 */
import { fork, spawn } from "node:child_process"
import { once } from "node:events"
import { readFileSync, writeFileSync } from "node:fs"
import { request } from "node:http"
import { join } from "node:path"
import { performance } from "node:perf_hooks"
import { openPostgres } from "../server/src/db/open.ts"
import { postgresBinaries, startPostgres } from "../server/test/postgres.ts"
import { startService } from "../server/test/service.ts"
import { type Figures, rounds } from "./rounds.ts"
import { addRows, type Owner } from "./rows.ts"

/** Below a million the reader and the first compilation weigh too much. */
const ROWS = Number(process.env.BENCH_ROWS ?? 1_000_000)
const AS = "shop"

/** The rows of each file, as `COPY` reads them. */
const files = {
  transactions: `select id, type, status, exception, amount, token, chain_id, tx_hash, payer, recipient, resource_id, payment_id, created_at
    from transactions where merchant_id = $ order by created_at desc, id desc`,
  books: `select b.id, at, direction, reason, p.status, p.exception, b.amount, b.token, b.chain_id, d.address, b.sender, b.recipient, b.tx_hash,
      b.block_number, b.state, c.payment_id, b.payout_id, d.resource_id
    from books b left join deposits d on d.id = b.deposit_id left join claims c on c.transfer_id = b.transfer_id
      left join payments p on p.id = coalesce(b.payment_id, c.payment_id)
    where b.merchant_id = $ order by at desc, b.id desc`,
  deposits: `select address, chain_id, factory, salt, owner, approver, payees_hash, open_after_s, resource_id, created_at
    from deposits where merchant_id = $ order by id desc`,
  audit: `select at, actor_kind, actor_id, actor_issuer, action, object_id, before, after, address, user_agent, route, request_id, id
    from audit_entries where merchant_id = $ order by at desc, n desc`,
}

async function serve(url: string): Promise<void> {
  const database = await openPostgres(url, error => process.stderr.write(`database: ${error.message}\n`))
  const service = await startService({ database })
  const merchantId = await service.merchant(AS)
  const paywall = await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: AS })
  const token = service.ctx.chain.networks[0]?.token.address ?? ""
  const owner: Owner = { merchantId, paywallId: paywall.body.id, webhookId: `c${"w".repeat(24)}`, token }
  process.send?.([await service.listen(), await service.issuer.token(AS), owner])
}

/** Milliseconds until a file was read to its end. */
async function download(base: string, token: string, file: string): Promise<number> {
  const from = performance.now()
  const sent = request(`${base}/api/console/${file}.csv`, { headers: { authorization: `Bearer ${token}` } }).end()
  const [answer] = await once(sent, "response")
  let lines = 0
  answer.on("data", (data: Buffer) => {
    for (let at = data.indexOf(10); at >= 0; at = data.indexOf(10, at + 1)) lines++
  })
  await once(answer, "end")
  if (lines < ROWS) throw new Error(`${file}.csv had ${lines} lines: ${answer.statusCode}`)
  return performance.now() - from
}

/** Milliseconds that `psql` takes for the same rows. */
async function copy(url: string, query: string): Promise<number> {
  const psql = join(postgresBinaries() ?? "", "psql")
  const from = performance.now()
  const child = spawn(psql, [url, "-qc", `copy (${query}) to stdout`], { stdio: ["ignore", "ignore", "inherit"] })
  const [code] = await once(child, "exit")
  if (code !== 0) throw new Error(`psql ended with ${code}`)
  return performance.now() - from
}

/** The most memory that a process held since the last call, in MB; Linux only. */
function peakOf(pid: number): number {
  const [, kb] = /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? []
  writeFileSync(`/proc/${pid}/clear_refs`, "5")
  return Number(kb) / 1_000
}

async function measure(): Promise<Figures> {
  const postgres = await startPostgres({ durable: true, fsync: true })
  const server = fork(import.meta.filename, ["serve", postgres.url], { execArgv: [] })
  try {
    const [[base, token, owner]] = (await once(server, "message")) as [[string, string, Owner]]
    const database = await openPostgres(postgres.url, () => {})
    const tables = ["resources", "deposits", "transfers", "payments", "claims", "audit_entries"]
    await addRows(database.db, owner, tables, 1, ROWS)
    await database.close()
    const pid = server.pid ?? 0
    const figures: Figures = {}
    await download(base, token, "deposits")
    peakOf(pid)
    figures.idle = peakOf(pid)
    for (const [file, query] of Object.entries(files)) {
      const text = query.replace("$", `'${owner.merchantId}'`)
      await copy(postgres.url, text)
      figures[`COPY ${file}`] = (await copy(postgres.url, text)) / 1_000
      peakOf(pid)
      figures[`${file}.csv`] = (await download(base, token, file)) / 1_000
      figures[`${file}.csv, peak`] = peakOf(pid)
    }
    return figures
  } finally {
    server.kill("SIGKILL")
    await postgres.stop()
  }
}

if (process.argv[2] === "serve") await serve(process.argv[3] ?? "")
else
  await rounds(
    import.meta.filename,
    {
      ...Object.fromEntries(
        Object.keys(files).flatMap(file => [
          [`COPY ${file}`, { unit: "s" }],
          [`${file}.csv`, { unit: "s", limit: `COPY ${file}` }],
          [`${file}.csv, peak`, { unit: "MB" }],
        ]),
      ),
      idle: { unit: "MB before" },
    },
    measure,
  )
