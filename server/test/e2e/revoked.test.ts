// What one process takes away, another one refuses at the next request, and stops sending within two seconds: no process remembers
// that a key or a wallet is good. All requests of a caller come on one connection.
import { type ChildProcess, spawn } from "node:child_process"
import { once } from "node:events"
import { Agent, request } from "node:http"
import { connect } from "node:net"
import { text as textOf } from "node:stream/consumers"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { type Anvil, deployDepositFactory, deployTestUsdc, startAnvil } from "../anvil.ts"
import { AUDIENCE, startIssuer, type TestIssuer } from "../issuer.ts"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { freePort, plainEnv, root, until } from "./program.ts"

let postgres: Awaited<ReturnType<typeof startPostgres>>
let database: pg.Pool
let anvil: Anvil
let issuer: TestIssuer
const processes: ChildProcess[] = []
let urls: [string, string]
/** What the processes have logged. */
let lines = ""
/** The caller's only connection to the first process. */
const agent = new Agent({ keepAlive: true, maxSockets: 1 })

interface Asked {
  method?: string
  body?: object
  headers?: Record<string, string>
}

/** One request; to the first process it takes the one connection. */
async function ask(url: string, path: string, { method = "GET", body, headers = {} }: Asked = {}) {
  const sent = request(url + path, {
    method,
    headers: { ...headers, ...(body ? { "content-type": "application/json" } : {}) },
    ...(url === urls[0] ? { agent } : {}),
  })
  // biome-ignore lint/suspicious/noExplicitAny: a test reads what it expects, and fails when it is not there.
  const answer = await new Promise<any>((resolve, reject) => {
    sent.once("response", response => void textOf(response).then(text => resolve({ response, text }), reject))
    sent.once("error", reject)
    sent.end(body && JSON.stringify(body))
  })
  return { status: answer.response.statusCode, body: JSON.parse(answer.text), port: sent.socket?.localPort }
}

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("two API processes on one database", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
    database = new pg.Pool({ connectionString: postgres.url })
    database.on("error", () => {})
    anvil = await startAnvil()
    issuer = await startIssuer()
    const env = {
      ...plainEnv(),
      MODE: "test",
      LOG_LEVEL: "info",
      DATABASE_URL: postgres.url,
      SECRET_KEY: "5f".repeat(32),
      OIDC_ISSUER: issuer.issuer,
      OIDC_AUDIENCE: AUDIENCE,
      RPC_BASE_SEPOLIA: anvil.rpcUrl,
      TOKEN_BASE_SEPOLIA: await deployTestUsdc(anvil.client),
      DEPOSIT_FACTORY_BASE_SEPOLIA: await deployDepositFactory(anvil.client, anvil.accounts[1].address),
    }
    const ports = [`${await freePort()}`, `${await freePort()}`]
    urls = ports.map(port => `http://127.0.0.1:${port}`) as [string, string]
    for (const [n, PORT] of ports.entries()) {
      processes.push(
        spawn(process.execPath, ["server/src/main.ts", "--role", "api"], {
          cwd: root,
          env: { ...env, PORT },
          stdio: ["ignore", "pipe", "inherit"],
        }),
      )
      processes.at(-1)?.stdout?.on("data", text => (lines += text))
      const isUp = () => fetch(`${urls[n]}/readyz`).then(({ ok }) => ok)
      await until("the process is ready", () => isUp().catch(() => false))
    }
  })
  afterAll(async () => {
    agent.destroy()
    for (const child of processes) {
      const ended = new Promise(resolve => child.once("exit", resolve))
      if (child.exitCode === null && child.kill("SIGTERM")) await ended
    }
    await issuer?.stop()
    await anvil?.stop()
    await database?.end()
    await postgres?.stop()
  })

  it("refuse a key that the other revoked, and sell nothing once a wallet is halted", async () => {
    const [first, second] = urls
    const owner = { authorization: `Bearer ${await issuer.token("shop")}` }
    const inConsole = (url: string, method: string, path: string, body?: object) =>
      ask(url, `/api/console/${path}`, { method, headers: owner, ...(body ? { body } : {}) })
    await inConsole(second, "PUT", "settings", { payoutAddress: `0x${"ab".repeat(20)}` })
    const { body: made } = await inConsole(second, "POST", "api-keys", { name: "server" })
    await inConsole(second, "POST", "payment-links", { title: "Book", amount: "5", slug: "book" })
    const sell = () =>
      ask(first, "/api/checkouts", { method: "POST", body: { amount: "5" }, headers: { "x-api-key": made.key } })
    const sellKeyed = (key: string) =>
      ask(first, "/api/checkouts", {
        method: "POST",
        body: { amount: "5" },
        headers: { "x-api-key": made.key, "idempotency-key": key },
      })
    const start = () => ask(first, "/api/pay/sessions", { method: "POST", body: { slug: "book" } })

    const sold = await sell()
    expect(sold.status).toBe(201)
    const status = () => ask(first, `/api/pay/status/${sold.body.id}`)
    expect([await start(), await status()].map(answer => answer.status)).toEqual([201, 200])
    expect((await status()).body).toMatchObject({ paused: false, payTo: sold.body.payTo })

    await database.query(`insert into wallets (chain_id, address, next_nonce, lane, status, halted_reason, run_at)
      values (84532, '0x${"cd".repeat(20)}', 0, 'payout', 'halted', 'stolen', now())`)
    for (const answer of [await sell(), await sellKeyed("a"), await start()])
      expect([answer.status, answer.body.error, answer.port]).toEqual([503, "PAYMENTS_PAUSED", sold.port])
    const { body: paused } = await status()
    expect([paused.paused, "payTo" in paused]).toEqual([true, false])
    await database.query("update wallets set status = 'active', halted_reason = null")
    for (const answer of [await sell(), await sellKeyed("a"), await start()]) expect(answer.status).toBe(201)

    const { status: revoked } = await inConsole(second, "DELETE", `api-keys/${made.id}`)
    expect(revoked).toBe(200)
    for (const answer of [await sell(), await sellKeyed("a"), await sellKeyed("b")])
      expect([answer.status, answer.body.error, answer.port]).toEqual([401, "UNAUTHORIZED", sold.port])
    expect((await database.query("select from checkout_sessions")).rowCount).toBe(5)
  })

  describe("end an answer that lasts within two seconds, at the other process,", () => {
    const PERSON = `per_${"a".repeat(24)}`
    let shop: string
    const asOwner = async (method: string, path: string, body?: object) => {
      const headers = { authorization: `Bearer ${await issuer.token("keeper")}` }
      const answer = await ask(urls[1], `/api/console/${path}`, { method, headers, ...(body ? { body } : {}) })
      expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
      return answer.body
    }
    beforeAll(async () => {
      shop = (await asOwner("GET", "settings")).merchantId
      await database.query("insert into persons (id, iss, sub, created_at) values ($1, $2, 'ann', now())", [
        PERSON,
        issuer.issuer,
      ])
      await database.query(
        "insert into members (merchant_id, person_id, role, created_at) values ($1, $2, 'admin', now())",
        [shop, PERSON],
      )
      // More than what lies in the buffers of a connection.
      await database.query(
        `insert into audit_entries (merchant_id, actor_kind, action, object_id, after)
          select $1, 'service', 'paywall.created', 'pw', jsonb_build_object('name', repeat('x', 2000))
          from generate_series(1, 20000)`,
        [shop],
      )
    })

    /** Asks the first process for a long file, and reads only its beginning; returns how the request is refused afterwards. */
    async function begin(id: string, headers: Record<string, string>) {
      const { port } = new URL(urls[0])
      const socket = connect(Number(port), "127.0.0.1").on("error", () => {})
      const all = Object.entries({ host: "a", "x-request-id": id, ...headers }).map(
        ([name, value]) => `${name}: ${value}`,
      )
      socket.write(`GET /api/console/audit.csv HTTP/1.1\r\n${all.join("\r\n")}\r\n\r\n`)
      const [head] = await once(socket, "data")
      expect(String(head)).toMatch(/^HTTP\/1\.1 200 /)
      socket.pause()
      return async () => {
        socket.destroy()
        return (await ask(urls[0], "/api/console/audit.csv", { headers })).body.error
      }
    }
    const isCut = (id: string) =>
      lines
        .split("\n")
        .some(
          line => line.includes(`"requestId":"${id}"`) && line.includes("answer cut off because its credential ended"),
        )
    async function expectCut(id: string, from: number): Promise<void> {
      await until("the answer ends", () => isCut(id))
      const after = Date.now() - from
      expect(after).toBeLessThan(2_000)
      // Nor before: the clocks of processes on one machine differ by less.
      expect(after).toBeGreaterThan(-500)
    }
    const newKey = async () => {
      const made = await asOwner("POST", "api-keys", { name: "A", scopes: ["console"] })
      return { id: made.id as string, headers: { "x-api-key": made.key as string } }
    }
    const asAnn = async () => ({ authorization: `Bearer ${await issuer.token("ann")}`, "sluice-merchant": shop })

    it.each([
      ["when its key is revoked", "DELETE", "", undefined],
      ["when its key is rolled", "POST", "/roll", { graceSeconds: 0 }],
      ["when its key may be used from elsewhere alone", "PUT", "", { allowedIps: ["192.0.2.7"] }],
      ["when its key gets other scopes", "PUT", "", { scopes: ["read"] }],
    ])("%s", async (what, method, path, body) => {
      const { id, headers } = await newKey()
      const name = `key-${what.replaceAll(" ", "-")}`
      const after = await begin(name, headers)
      await asOwner(method, `api-keys/${id}${path}`, body)
      await expectCut(name, Date.now())
      expect(await after()).toMatch(/^(UNAUTHORIZED|IP_NOT_ALLOWED|SCOPE_REQUIRED)$/)
    })

    it("when its key ends, and when the secret before a roll does, both set while it lasts", async () => {
      const { id, headers } = await newKey()
      const after = await begin("rolled", headers)
      await asOwner("POST", `api-keys/${id}/roll`, { graceSeconds: 3 })
      await expectCut("rolled", Date.now() + 3_000)
      expect(await after()).toBe("UNAUTHORIZED")
      const other = await newKey()
      const afterEnd = await begin("ended", other.headers)
      const expiresAt = new Date(Date.now() + 3_000)
      await asOwner("PUT", `api-keys/${other.id}`, { expiresAt: expiresAt.toISOString() })
      expect(isCut("ended")).toBe(false)
      await expectCut("ended", expiresAt.getTime())
      expect(await afterEnd()).toBe("UNAUTHORIZED")
    })

    it("when its person gets another role, and when the person is removed", async () => {
      const lowered = await begin("lowered", await asAnn())
      await asOwner("PUT", `team/${PERSON}`, { role: "viewer" })
      await expectCut("lowered", Date.now())
      expect(await lowered()).toBe("ROLE_REQUIRED")
      await asOwner("PUT", `team/${PERSON}`, { role: "finance" })
      const removed = await begin("removed", await asAnn())
      await asOwner("DELETE", `team/${PERSON}`)
      await expectCut("removed", Date.now())
      expect(await removed()).toBe("MERCHANT_REQUIRED")
    })
  })
})
