/**
 * How many times a second `GET /api/paywalls/:id/verify` is answered with its limits on, compared with `/healthz` and a
 * bare `node:http` that sends the same bytes. The server and a Postgres that survives a power cut are processes of
 * their own. The driver writes to plain sockets, each from its own loopback address, because an HTTP client would be
 * slower than the server. `script/bench verify [--against COMMIT]`
 */
import { fork } from "node:child_process"
import { once } from "node:events"
import { createServer } from "node:http"
import { type AddressInfo, connect } from "node:net"
import { inTransaction } from "../server/src/platform/context.ts"
import { openPostgres } from "../server/src/platform/db/open.ts"
import { newId } from "../server/src/platform/ids.ts"
import { foldAccess, lockAccess } from "../server/src/products/paywalls/read-access.ts"
import { startPostgres } from "../server/test/postgres.ts"
import { noLimits, startService, type TestService } from "../server/test/service.ts"
import { type Figures, rounds } from "./rounds.ts"

const CONNECTIONS = 32
const FIRST_MS = 2_000
const MEASURE_MS = 4_000
/** So high that no request is refused; counting costs the same. */
const A_MINUTE = 1_000_000

const payer = (n: number) => `0x${String(n).padStart(40, "a")}` as never

/** Gives some payers access to a paywall, as a payment does. */
async function grant(service: TestService, paywallId: string, n: number): Promise<void> {
  await inTransaction(service.ctx, async ctx => {
    const now = ctx.now()
    const { merchant_id } = await ctx.db
      .selectFrom("paywalls")
      .selectAll()
      .where("id", "=", paywallId)
      .executeTakeFirstOrThrow()
    const tx_hash = `0x${"5f".repeat(32)}` as never
    const common = {
      chain_id: 84532,
      payer: payer(n),
      amount: 5n,
      status: "granted" as const,
      token: payer(0),
      tx_hash,
    }
    const payment = {
      ...common,
      id: newId("pay"),
      resource_id: paywallId,
      merchant_id,
      created_at: now,
      updated_at: now,
    }
    await lockAccess(ctx, paywallId, payer(n))
    await ctx.db.insertInto("payments").values(payment).execute()
    await ctx.db
      .insertInto("grants")
      .values({
        id: newId("grant"),
        paywall_id: paywallId,
        address: payer(n),
        payment_id: payment.id,
        tx_hash,
        granted_at: now,
        duration_s: 86_400n,
        calls: null,
        calls_used: 0,
      } as never)
      .execute()
    await foldAccess(ctx, paywallId, payer(n))
  })
}

async function serve(url: string): Promise<void> {
  const database = await openPostgres(url, error => process.stderr.write(`database: ${error.message}\n`))
  const limits = { ...noLimits, paywallVerify: A_MINUTE, public: A_MINUTE }
  const service = await startService({ database, settings: { limits, logLevel: "info" } as never })
  await service.merchant("shop")
  const paywall = await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })
  for (let n = 1; n <= CONNECTIONS; n++) await grant(service, paywall.body.id, n)
  const { port } = new URL(await service.listen())
  const body = JSON.stringify({ hasAccess: true, expiresAt: new Date().toISOString(), txHash: `0x${"5f".repeat(32)}` })
  const bare = createServer((_, response) => {
    response.setHeader("content-type", "application/json; charset=utf-8")
    response.end(body)
  })
  bare.listen(0, "127.0.0.1", () =>
    process.send?.([Number(port), (bare.address() as AddressInfo).port, paywall.body.id]),
  )
}

/** Requests answered a second, with `CONNECTIONS` connections that each wait for their answer. */
async function rate(port: number, path: (n: number) => string, expected: string): Promise<number> {
  let count = 0
  const sockets = Array.from({ length: CONNECTIONS }, (_, i) => {
    const request = Buffer.from(`GET ${path(i + 1)} HTTP/1.1\r\nHost: localhost\r\n\r\n`)
    const socket = connect({ port, host: "127.0.0.1", localAddress: `127.0.1.${i + 1}`, noDelay: true })
    let checked = false
    socket.on("data", data => {
      // An answer is small enough to come in one piece.
      if (!checked && !data.includes(expected)) throw new Error(`answered ${data}`)
      checked = true
      count++
      socket.write(request)
    })
    socket.on("error", () => {})
    socket.write(request)
    return socket
  })
  const pause = (ms: number) => new Promise(resolve => setTimeout(resolve, ms))
  await pause(FIRST_MS)
  const startedAt = performance.now()
  const before = count
  await pause(MEASURE_MS)
  const perSecond = ((count - before) / (performance.now() - startedAt)) * 1_000
  for (const socket of sockets) socket.destroy()
  return perSecond
}

async function measure(): Promise<Figures> {
  const postgres = await startPostgres({ fsync: true })
  // The log is written, as always, and discarded.
  const server = fork(import.meta.filename, ["serve", postgres.url], {
    execArgv: [],
    stdio: ["ignore", "ignore", "inherit", "ipc"],
  })
  try {
    const [[port, bare, id]] = (await once(server, "message")) as [[number, number, string]]
    const verify = (n: number) => `/api/paywalls/${id}/verify?address=${payer(n)}`
    return {
      verify: await rate(port, verify, '"hasAccess":true'),
      "verify, no access": await rate(port, n => verify(n + 1_000), '"hasAccess":false'),
      healthz: await rate(port, () => "/healthz", "ok"),
      "bare node:http": await rate(bare, () => "/", '"hasAccess":true'),
    }
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
      verify: { unit: "requests/s", limit: "bare node:http" },
      "verify, no access": { unit: "requests/s", limit: "bare node:http" },
      healthz: { unit: "requests/s", limit: "bare node:http" },
      "bare node:http": { unit: "requests/s" },
    },
    measure,
  )
