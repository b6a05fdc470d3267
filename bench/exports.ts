/**
 * How long a merchant waits for the CSV of a million rows, compared with the database's own `COPY … TO STDOUT` of the
 * same rows, and the peak memory of the process that makes it. The process is what operators run, `sluice start --role api`
 * of the package, on a Postgres that survives a power cut; the reader discards what it reads. `script/bench exports [--against COMMIT]`;
 * `BENCH_ROWS` is for a quick try with fewer, and `NODE_OPTIONS` is the program's too
 */
import { spawn } from "node:child_process"
import { once } from "node:events"
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { request } from "node:http"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { performance } from "node:perf_hooks"
import { pack } from "../ops/pack.ts"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { deployDepositFactory, deployTestUsdc, placeSharedContracts, startAnvil } from "../server/test/anvil.ts"
import { freePort, root, until } from "../server/test/e2e/program.ts"
import { AUDIENCE, startIssuer } from "../server/test/issuer.ts"
import { postgresBinaries, startPostgres } from "../server/test/postgres.ts"
import { type Figures, rounds } from "./rounds.ts"
import { addRows, type Owner } from "./rows.ts"

/** With fewer than a million rows, the reader and the first compilation count too much. */
const ROWS = Number(process.env.BENCH_ROWS ?? 1_000_000)
const AS = "shop"
const PAYOUT_ADDRESS = `0x${"ab".repeat(20)}`

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

interface Program {
  base: string
  token: string
  owner: Owner
  pid: number
  stop(): Promise<void>
}

/** The program with a merchant, on a chain of its own. */
async function start(url: string): Promise<Program> {
  const anvil = await startAnvil()
  const issuer = await startIssuer()
  const port = await freePort()
  await placeSharedContracts(anvil.client)
  const token = await deployTestUsdc(anvil.client)
  const dir = mkdtempSync(join(tmpdir(), "sluice-exports-"))
  const env = {
    PATH: process.env.PATH,
    NODE_OPTIONS: process.env.NODE_OPTIONS,
    MODE: "test",
    LOG_LEVEL: "warn",
    PORT: `${port}`,
    DATA_DIR: dir,
    DATABASE_URL: url,
    SECRET_KEY: "5f".repeat(32),
    OIDC_ISSUER: issuer.issuer,
    OIDC_AUDIENCE: AUDIENCE,
    RPC_BASE_SEPOLIA: anvil.rpcUrl,
    TOKEN_BASE_SEPOLIA: token,
    VERIFY_INTERVAL: "1s",
    DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
  }
  await pack(join(root, "dist"))
  const args = ["dist/package/bin/sluice.js", "start", "--role", "api"]
  const child = spawn(process.execPath, args, { cwd: root, env, stdio: ["ignore", "ignore", "inherit"] })
  const kill = () => void child.kill("SIGKILL")
  process.once("exit", kill)
  const base = `http://127.0.0.1:${port}`
  const bearer = await issuer.token(AS)
  const headers = { authorization: `Bearer ${bearer}`, "content-type": "application/json" }
  const call = async (method: string, path: string, body: object): Promise<Record<string, string>> => {
    const answer = await fetch(`${base}/api/console/${path}`, { method, headers, body: JSON.stringify(body) })
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`)
    return (await answer.json()) as Record<string, string>
  }
  const settings = () => call("PUT", "settings", { payoutAddress: PAYOUT_ADDRESS }).catch(() => undefined)
  await until("the program answers", async () => child.exitCode !== null || (await settings()) !== undefined, 60_000)
  const { merchantId = "" } = (await settings()) ?? {}
  const { id: paywallId = "" } = await call("POST", "paywalls", { name: "Film", price: 5 })
  const stop = async () => {
    process.off("exit", kill)
    const ended = once(child, "exit")
    kill()
    await ended
    await Promise.all([anvil.stop(), issuer.stop()])
    rmSync(dir, { recursive: true, force: true })
  }
  const owner = { merchantId, paywallId, webhookId: `c${"w".repeat(24)}`, token }
  return { base, token: bearer, owner, pid: child.pid ?? 0, stop }
}

/** Milliseconds until the whole file was read. */
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
  const postgres = await startPostgres({ fsync: true })
  const { base, token, owner, pid, stop } = await start(postgres.url)
  try {
    const database = await openPostgres(postgres.url, () => {})
    const tables = ["resources", "deposits", "transfers", "payments", "claims", "audit_entries"]
    await addRows(database.background, owner, tables, 1, ROWS)
    await database.close()
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
    await stop()
    await postgres.stop()
  }
}

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
