/**
 * What a call through a bundle costs compared with a plain undici proxy to the same origin, in one run, with calls of
 * both in turn. Goal: at most 2 ms more at the median. Also how much of 100 MB the process holds while a slow caller
 * reads them.
 */
import { once } from "node:events"
import { createServer, request as httpRequest, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"
import { performance } from "node:perf_hooks"
import { pipeline } from "node:stream/promises"
import { setTimeout as sleep } from "node:timers/promises"
import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Worker } from "node:worker_threads"
import { Agent } from "undici"
import { startPostgres } from "../server/test/postgres.ts"

const CALLS = 3_000
const UNTIMED = 500
const GOAL_MS = 2
const SAMPLE_BYTES = 2 * 1024 * 1024

const postgres = await startPostgres({ fsync: true })
process.env.DATABASE_URL = postgres.url
const { startService } = await import("../server/test/service.ts")
const say = (text: string) => process.stdout.write(`${text}\n`)

/** In a thread of its own, so that it costs both proxies the same and neither waits for it. */
const worker = new Worker(
  `const { createServer } = require("node:http")
   const { parentPort } = require("node:worker_threads")
   const part = Buffer.alloc(65536, 1)
   createServer((request, response) => {
     request.resume()
     if (!request.url.endsWith("/large")) return response.writeHead(200, { "content-type": "application/json" }).end('{"ok":true}')
     let n = 0
     const more = () => { while (n++ < 1600) if (!response.write(part)) return response.once("drain", more); response.end() }
     more()
   }).listen(0, "127.0.0.1", function () { parentPort.postMessage(this.address().port) })`,
  { eval: true },
)
const [port] = (await once(worker, "message")) as [number]
const originUrl = `http://127.0.0.1:${port}`

const service = await startService()
await service.merchant("shop")
const routes = ["/small", "/large"].map(path => ({ method: "GET", path, price: 0 }))
const bundle = { name: "Bench", slug: "bench", originUrl, originHeaders: { authorization: "Bearer x" }, routes }
await service.call("POST", "/api/console/bundles", bundle, { as: "shop" })
const ours = await service.listen()

const agent = new Agent()
const plain = createServer(async (request, response) => {
  const { method = "GET", url = "/", headers } = request
  const { host: _, connection: __, ...passed } = headers
  const answer = await agent.request({
    origin: originUrl,
    path: url,
    method: method as "GET",
    headers: passed as Record<string, string>,
  })
  response.writeHead(answer.statusCode, answer.headers as Record<string, string>)
  await pipeline(answer.body, response)
}).listen(0, "127.0.0.1")
await once(plain, "listening")
const peer = `http://127.0.0.1:${(plain.address() as AddressInfo).port}`

const client = new Agent()
async function timed(url: string): Promise<number> {
  const { origin, pathname } = new URL(url)
  const startedAt = performance.now()
  const { statusCode, body } = await client.request({ origin, path: pathname, method: "GET" })
  const text = await body.text()
  if (statusCode !== 200 || text !== '{"ok":true}') throw new Error(`${url} answered ${statusCode} ${text}`)
  return performance.now() - startedAt
}

const times: Record<"ours" | "peer", number[]> = { ours: [], peer: [] }
for (let i = 0; i < CALLS + UNTIMED; i++)
  for (const [name, url] of [
    ["ours", `${ours}/api/p/bench/small`],
    ["peer", `${peer}/small`],
  ] as const) {
    const ms = await timed(url)
    if (i >= UNTIMED) times[name].push(ms)
  }
const at = (list: number[], part: number) => list.toSorted((a, b) => a - b)[Math.floor(list.length * part)] ?? 0
for (const part of [0.5, 0.95, 0.99])
  say(
    `p${part * 100}: ${at(times.ours, part).toFixed(2)} ms through the bundle, ${at(times.peer, part).toFixed(2)} ms through the plain proxy`,
  )
const added = at(times.ours, 0.5) - at(times.peer, 0.5)
say(`added at the median: ${added.toFixed(2)} ms (goal: at most ${GOAL_MS})`)

setFlagsFromString("--expose-gc")
const collect = runInNewContext("gc") as () => void
/** Bytes that are in use, without garbage. */
function held(): number {
  collect()
  const { heapUsed, external } = process.memoryUsage()
  return heapUsed + external
}
const { hostname, port: ourPort } = new URL(ours)
const before = held()
let most = 0
const request = httpRequest({ host: hostname, port: ourPort, path: "/api/p/bench/large" }).end()
const [response] = (await once(request, "response")) as [IncomingMessage]
let bytes = 0
for await (const chunk of response) {
  bytes += (chunk as Buffer).length
  if (bytes % SAMPLE_BYTES >= (chunk as Buffer).length) continue
  // Slower than the origin: everything that is not passed on would pile up here.
  await sleep(20)
  most = Math.max(most, held() - before)
}
say(`${(bytes / 1e6).toFixed(0)} MB streamed to a slow caller; at most ${(most / 1e6).toFixed(1)} MB of it were held`)

await worker.terminate()
process.exit(added <= GOAL_MS ? 0 : 1)
