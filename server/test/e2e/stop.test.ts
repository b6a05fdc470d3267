// The whole program is stopped while a caller drips its upload: it still closes its database, sends its last spans and exits with 0.
import { once } from "node:events"
import { connect } from "node:net"
import { afterAll, beforeAll, expect, it } from "vitest"
import { type Collector, startCollector } from "../collector.ts"
import { newSandbox, type Sandbox, until } from "./program.ts"

let sandbox: Sandbox
let collector: Collector
beforeAll(async () => {
  collector = await startCollector()
  const traces = { OTEL_EXPORTER_OTLP_ENDPOINT: collector.settings.endpoint, OTEL_EXPORTER_OTLP_PROTOCOL: "http/json" }
  sandbox = await newSandbox(traces, "migrated")
})
afterAll(async () => {
  await sandbox?.remove()
  await collector?.stop()
})

it("a dripping upload does not make a stop unclean", async () => {
  const run = await sandbox.start()
  const key = Object.values(sandbox.file().merchants as Record<string, { apiKey: string }>)[0]?.apiKey
  const socket = connect(sandbox.port, "127.0.0.1").on("error", () => undefined)
  const head = ["POST /api/checkouts HTTP/1.1", "Host: a", "Content-Type: application/json", `x-api-key: ${key}`]
  socket.write(`${head.join("\r\n")}\r\nContent-Length: 200000\r\nExpect: 100-continue\r\n\r\n`)
  // The server waits for the body now.
  expect(`${(await once(socket, "data"))[0]}`).toContain("100 Continue")
  // Never idle, never done.
  const drip = setInterval(() => socket.write(" "), 200)
  // Not `once`, which rejects where what drips meets a closed connection.
  const closed = new Promise(resolve => socket.once("close", resolve))
  expect(await run.kill("SIGTERM")).toEqual({ code: 0, signal: null })
  await closed
  clearInterval(drip)
  const [cut] = collector.spans().filter(({ name }) => name === "POST /api/checkouts")
  expect(cut).toMatchObject({ process: "sluice", attributes: { "error.type": "aborted" }, isError: true })
  // What was closed in order opens again.
  const again = await sandbox.start()
  await until("it is ready", async () => (await sandbox.call("/readyz")).status === 200)
  expect(await again.kill("SIGTERM")).toEqual({ code: 0, signal: null })
})
