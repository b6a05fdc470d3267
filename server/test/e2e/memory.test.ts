/** The whole program, asked by callers who never read their answers: it holds little, and others are served. */
import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { connect, type Socket } from "node:net"
import fc from "fast-check"
import pg from "pg"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { newSandbox, plainEnv, type Run, type Sandbox, until } from "./program.ts"

const MB = 1024 * 1024
/** Of some 7 KB each: together they make a list of 7 MB. A socket's buffers take 4 of it, the process holds the rest. */
const CHECKOUTS = 1_000
/** Requests that wait without a bound need more, which ends the process. */
const HEAP_MB = 256
const METRICS_TOKEN = "of the memory test"

/** Without limits, so that nothing but the bounds on connections is in the way. */
const unlimited = {
  ...Object.fromEntries(
    ["AUTH", "CHECKOUT", "PAY_STATUS", "CONSOLE", "MERCHANT", "PUBLIC"].map(bucket => [`LIMIT_${bucket}`, "0"]),
  ),
  MAX_DOWNLOADS: "1000",
}

const paths = [
  "/docs",
  "/docs/try",
  "/docs/json",
  "/docs/yaml",
  "/docs/static/swagger-ui-bundle.js",
  "/docs/static/swagger-ui.css",
  "/api/checkouts?limit=1000",
  "/api/console/checkouts?limit=1000",
  "/api/console/books.csv",
  "/api/console/transactions.csv",
  "/api/pay/status/ID?wait=25",
  "/nowhere",
]

interface Flood {
  connections: number
  requests: number
  paths: string[]
  credentials: string
}

const flood: fc.Arbitrary<Flood> = fc.record({
  connections: fc.integer({ min: 1, max: 60 }),
  requests: fc.integer({ min: 1, max: 2_000 }),
  paths: fc.array(fc.constantFrom(...paths), { minLength: 1, maxLength: 4 }),
  credentials: fc.constantFrom("", "token", "key"),
})

describe.runIf(postgresBinaries())("callers who do not read their answers", () => {
  let sandbox: Sandbox
  let run: Run
  let postgres: TestPostgres
  let headers: Record<string, string>
  let id: string
  /** The memory before the first flood. Later the process may have given some of it back. */
  let idle: number

  beforeAll(async () => {
    // The embedded database would be most of the process's memory.
    postgres = await startPostgres()
    sandbox = await newSandbox({
      ...unlimited,
      LOG_LEVEL: "fatal",
      METRICS_TOKEN,
      DATABASE_URL: postgres.url,
      NODE_OPTIONS: `${plainEnv().NODE_OPTIONS ?? ""} --max-old-space-size=${HEAP_MB}`,
    })
    run = await sandbox.start()
    const [merchant] = sandbox.file().merchants
    headers = {
      "": "",
      token: `Authorization: Bearer ${merchant.accessToken}\r\n`,
      key: `x-api-key: ${merchant.apiKey}\r\n`,
    }
    const metadata = Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`field${i}`, "m".repeat(480)]))
    const order = { amount: 5, description: "d".repeat(2_000), metadata }
    const { status, body } = await sandbox.call("/api/checkouts", order, { "x-api-key": merchant.apiKey })
    expect(status).toBe(201)
    id = body.sessionId ?? body.id
    await copyCheckout()
    for (const path of paths) await ask(path)
    idle = rss()
  })
  afterAll(async () => {
    await sandbox?.remove()
    await postgres?.stop()
  })

  /** As many as a list takes; made one by one they would take a minute. */
  async function copyCheckout(): Promise<void> {
    const client = new pg.Client({ connectionString: postgres.url })
    await client.connect()
    const copies = `generate_series(1, ${CHECKOUTS - 1}) n`
    await client.query(`insert into checkout_sessions
      select (jsonb_populate_record(s, jsonb_build_object('id', s.id || n))).* from checkout_sessions s, ${copies}`)
    await client.query(`insert into deposits overriding system value
      select (jsonb_populate_record(d, jsonb_build_object('id', d.id + n, 'resource_id', d.resource_id || n,
        'address', '0x' || lpad(to_hex(n), 40, '0'), 'salt', '0x' || lpad(to_hex(n), 64, '0')))).*
      from deposits d, ${copies} where starts_with(d.resource_id, 'cs_')`)
    await client.end()
  }

  const ask = async (path: string): Promise<number> => {
    const response = await fetch(sandbox.url + path.replace("ID?wait=25", id), {
      headers: { "x-api-key": sandbox.file().merchants[0].apiKey },
    })
    await response.text()
    return response.status
  }
  const rss = (): number => Number(execFileSync("ps", ["-o", "rss=", "-p", `${run.process.pid}`])) * 1024

  const dropped = async (reason: string): Promise<number> => {
    const response = await fetch(`${sandbox.url}/metrics`, { headers: { authorization: `Bearer ${METRICS_TOKEN}` } })
    const text = await response.text()
    return Number(
      text.match(new RegExp(`^sluice_http_connections_dropped_total{reason="${reason}"} (\\d+)$`, "m"))?.[1] ?? 0,
    )
  }
  const closing = (sockets: Socket[]) => {
    for (const socket of sockets) socket.destroy()
  }

  it("are disconnected when their requests wait: half a million end nothing in a heap of 256 MB", async () => {
    const many = { requests: 5_000, paths: ["/api/pay/status/ID?wait=25"], credentials: "" }
    const sockets = await Promise.all(Array.from({ length: 100 }, () => pour({ ...many, connections: 1 })))
    try {
      await until("each is disconnected", async () => (await dropped("pipelined")) >= sockets.length)
      expect(await ask("/docs/json")).toBe(200)
    } finally {
      closing(sockets)
    }
  })

  it("are disconnected when more than 64 do not read a list: each part of one counts as 1 MB", async () => {
    const one = { connections: 1, requests: 1, paths: ["/api/checkouts?limit=1000"], credentials: "key" }
    const sockets = await Promise.all(Array.from({ length: 100 }, () => pour(one)))
    try {
      await until("36 are disconnected", async () => (await dropped("unread")) >= sockets.length - 64)
      expect(rss() - idle).toBeLessThan(150 * MB)
      expect(await ask("/api/checkouts?limit=10")).toBe(200)
    } finally {
      closing(sockets)
    }
  })

  it("leave the process under 1.5 times its idle memory + 100 MB, and others served", async () => {
    const most = 1.5 * rss() + 100 * MB
    const floods = fc.array(flood, { minLength: 1, maxLength: 5 })
    await fc.assert(
      fc.asyncProperty(floods, async floods => {
        const sockets = await Promise.all(
          floods.flatMap(each => Array.from({ length: each.connections }, () => pour(each))),
        )
        try {
          for (let i = 0; i < 10; i++) {
            expect(await ask("/api/checkouts?limit=10")).toBe(200)
            expect(await ask("/docs/json")).toBe(200)
            expect(rss()).toBeLessThan(most)
          }
        } finally {
          for (const socket of sockets) socket.destroy()
        }
      }),
      { numRuns: 4, endOnFailure: true },
    )
  })

  async function pour({ requests, paths, credentials }: Flood): Promise<Socket> {
    const socket = connect(sandbox.port, "127.0.0.1")
    socket.on("error", () => undefined)
    await once(socket, "connect")
    const one = (path: string) => `GET ${path.replace("ID", id)} HTTP/1.1\r\nHost: a\r\n${headers[credentials]}\r\n`
    socket.write(Array.from({ length: requests }, (_, i) => one(paths[i % paths.length] ?? "")).join(""))
    return socket
  }
})
