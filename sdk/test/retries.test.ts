// Retries through a network that loses, delays and cuts: each call takes effect once.
import { request as forward, type IncomingMessage } from "node:http"
import { buffer } from "node:stream/consumers"
import { afterAll, beforeAll, expect, it } from "vitest"
import { startServer } from "../../server/test/local-server.ts"
import { startService, type TestService } from "../../server/test/service.ts"
import { Sluice, SluiceError } from "../src/index.ts"

let service: TestService
let apiKey: string
beforeAll(async () => {
  service = await startService()
  await service.merchant("shop")
  const scopes = ["checkouts", "console"]
  const { body } = await service.call("POST", "/api/console/api-keys", { name: "sdk", scopes }, { as: "shop" })
  apiKey = body.key
})
afterAll(() => service?.stop())

const CHECKOUTS = 1_000
const AT_ONCE = 50

/** Numbers from 0 to 1 that are the same in each run (mulberry32). */
function seeded(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let t = Math.imul(state ^ (state >>> 15), 1 | state)
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t
    return ((t ^ (t >>> 14)) >>> 0) / 4_294_967_296
  }
}

it("makes exactly a thousand checkouts through a proxy that fails one request in three", async () => {
  const url = await service.listen()
  const random = seeded(41)
  const faults = { cutBefore: 0, cutAfter: 0, half: 0, limited: 0, broken: 0 }
  const proxy = await startServer((incoming, answer) => {
    const roll = random()
    const cut = (fault: "cutBefore" | "cutAfter" | "half") => {
      faults[fault]++
      incoming.socket.destroy()
    }
    if (roll < 0.05) return cut("cutBefore")
    if (roll < 0.15) {
      faults[roll < 0.1 ? "limited" : "broken"]++
      return void answer.writeHead(roll < 0.1 ? 429 : 500, { "retry-after": "0" }).end("<h1>Not now</h1>")
    }
    const { method, headers } = incoming
    const pass = async (response: IncomingMessage) => {
      const whole = await buffer(response)
      if (roll < 0.25) return cut("cutAfter")
      answer.writeHead(response.statusCode ?? 500, response.headers)
      if (roll >= 0.35) return void answer.end(whole)
      answer.write(whole.subarray(0, whole.length / 2), () => cut("half"))
    }
    incoming.pipe(forward(url + incoming.url, { method, headers }, response => void pass(response)))
  })
  const sluice = new Sluice({ baseUrl: proxy.url, apiKey, maxRetries: 20 })
  const made = new Set<string>()
  let next = 0
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (next < CHECKOUTS) {
        const order = `${next++}`
        const { id, metadata } = await sluice.checkouts.create({ amount: "5", metadata: { order } })
        expect(metadata).toEqual({ order })
        made.add(id)
      }
    }),
  )
  proxy.stop()
  expect(made.size).toBe(CHECKOUTS)
  const { count } = await service.ctx.db
    .selectFrom("checkout_sessions")
    .select(eb => eb.fn.countAll<number>().as("count"))
    .executeTakeFirstOrThrow()
  expect(Number(count)).toBe(CHECKOUTS)
  expect(Math.min(...Object.values(faults))).toBeGreaterThan(20)
})

it("sends a POST without an idempotency key once, and a read again", async () => {
  const seen: string[] = []
  const broken = await startServer((incoming, answer) => {
    seen.push(`${incoming.method} ${incoming.headers["idempotency-key"] === undefined ? "" : "with a key"}`.trim())
    answer.writeHead(503, { "content-type": "application/json", "retry-after": "0" })
    answer.end(JSON.stringify({ error: "DATABASE_UNAVAILABLE", message: "Try again.", requestId: "r" }))
  })
  const sluice = new Sluice({ baseUrl: broken.url, apiKey: "k" })
  const refused = async (call: Promise<unknown>, times: string[]) => {
    seen.length = 0
    await expect(call).rejects.toThrow(SluiceError)
    expect(seen).toEqual(times)
  }
  await refused(sluice.pay.confirm({} as never), ["POST"])
  await refused(sluice.checkouts.get("cs_1"), ["GET", "GET", "GET"])
  await refused(sluice.checkouts.create({ amount: 1 }), Array(3).fill("POST with a key"))
  await refused(sluice.checkouts.create({ amount: 1 }, { maxRetries: 0 }), ["POST with a key"])
  broken.stop()
})

it("with a queue sends a burst as fast as the limit allows, and refuses none of it", async () => {
  const LIMIT = 10
  let used = 0
  let most = 0
  let running = 0
  const seen = new Set<string>()
  const refused: number[] = []
  let opensAt = 0
  const limited = await startServer(async (incoming, answer) => {
    most = Math.max(most, ++running)
    await buffer(incoming)
    running--
    const now = Date.now()
    if (now >= opensAt) used = 0
    const isOver = used >= LIMIT
    if (isOver) refused.push(now)
    else if (used++ === 0) opensAt = now + 300
    answer.writeHead(isOver ? 429 : 200, { "content-type": "application/json", "retry-after": "0.3" })
    if (!isOver) seen.add(`${incoming.headers["idempotency-key"]}`)
    const error = { error: "RATE_LIMITED", message: "Too many.", requestId: "r", retryAfter: (opensAt - now) / 1_000 }
    answer.end(JSON.stringify(isOver ? error : { id: "cs_1" }))
  })
  const sluice = new Sluice({ baseUrl: limited.url, apiKey: "k", maxRetries: 0, queue: { atOnce: 4 } })
  await Promise.all(
    Array.from({ length: 30 }, (_, i) => sluice.checkouts.create({ amount: "1" }, { idempotencyKey: `${i}` })),
  )
  expect(seen.size).toBe(30)
  expect(most).toBeLessThanOrEqual(4)
  // Once one is refused, those that wait ask no more: at most as many are refused as were under way.
  expect(refused.length).toBeLessThanOrEqual(3 * 4)
  limited.stop()
})
