/** The whole program, asked by callers who never read their answers: it holds little, and others are served. */
import { execFileSync } from "node:child_process"
import { once } from "node:events"
import { connect, type Socket } from "node:net"
import fc from "fast-check"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { newSandbox, type Run, type Sandbox } from "./program.ts"

const MB = 1024 * 1024
/** Of some 7 KB each: together they make a list of 1 MB. */
const CHECKOUTS = 150

/** Without limits, so that nothing but the bounds on connections is in the way. */
const unlimited = Object.fromEntries(
  ["AUTH", "CHECKOUT", "PAY_STATUS", "CONSOLE", "MERCHANT", "PUBLIC"].map(bucket => [`LIMIT_${bucket}`, "0"]),
)

const paths = [
  "/docs",
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

describe("callers who do not read their answers", () => {
  let sandbox: Sandbox
  let run: Run
  let headers: Record<string, string>
  let id: string

  beforeAll(async () => {
    sandbox = await newSandbox({ ...unlimited, LOG_LEVEL: "fatal" })
    run = await sandbox.start()
    const [merchant] = sandbox.file().merchants
    headers = {
      "": "",
      token: `Authorization: Bearer ${merchant.accessToken}\r\n`,
      key: `x-api-key: ${merchant.apiKey}\r\n`,
    }
    const metadata = Object.fromEntries(Array.from({ length: 8 }, (_, i) => [`field${i}`, "m".repeat(480)]))
    const order = { amount: 5, description: "d".repeat(2_000), metadata }
    for (let i = 0; i < CHECKOUTS; i += 10) {
      const made = Array.from({ length: 10 }, () =>
        sandbox.call("/api/checkouts", order, { "x-api-key": merchant.apiKey }),
      )
      for (const { status, body } of await Promise.all(made)) {
        expect(status).toBe(201)
        id = body.sessionId ?? body.id
      }
    }
    for (const path of paths) await ask(path)
  }, 120_000)
  afterAll(() => sandbox?.remove())

  const ask = async (path: string): Promise<number> => {
    const response = await fetch(sandbox.url + path.replace("ID?wait=25", id), {
      headers: { "x-api-key": sandbox.file().merchants[0].apiKey },
    })
    await response.text()
    return response.status
  }
  const rss = (): number => Number(execFileSync("ps", ["-o", "rss=", "-p", `${run.process.pid}`])) * 1024

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
  }, 60_000)

  async function pour({ requests, paths, credentials }: Flood): Promise<Socket> {
    const socket = connect(sandbox.port, "127.0.0.1")
    socket.on("error", () => undefined)
    await once(socket, "connect")
    const one = (path: string) => `GET ${path.replace("ID", id)} HTTP/1.1\r\nHost: a\r\n${headers[credentials]}\r\n`
    socket.write(Array.from({ length: requests }, (_, i) => one(paths[i % paths.length] ?? "")).join(""))
    return socket
  }
})
