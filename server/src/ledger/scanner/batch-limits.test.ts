// Providers that take few calls in a request, or one: batches shrink until they fit, and what is refused for good is said.
import { afterAll, beforeAll, beforeEach, expect, it, vi } from "vitest"
import { ScriptedChain, type ScriptedNode, startNode } from "../../../test/node.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { batch } from "../../platform/chain/rpc.ts"
import { openLog } from "../../platform/log.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { ensureCursor } from "./scan-round.ts"

const BUYER = `0x${"b".repeat(40)}` as Address
const KEY = "9f3c01d2-key-of-mine"
let service: TestService
let chain: ScriptedChain
let nodes: ScriptedNode[] = []
let lines: { level: string; msg: string; answer?: string }[] = []
const node = () => nodes[0] as ScriptedNode

beforeAll(async () => {
  service = await startService()
  service.ctx.log = openLog("info", { write: line => void lines.push(JSON.parse(line)) })
})
afterAll(async () => {
  await service.stop()
  for (const each of nodes) await each.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  lines = []
})

const network = (): Network => service.ctx.chain.networks[0] ?? paperNetwork

async function serve(count: number): Promise<void> {
  for (const each of nodes) await each.stop()
  chain = new ScriptedChain(service.ctx.now())
  nodes = await Promise.all(Array.from({ length: count }, () => startNode(chain)))
  const endpoints = nodes.map(({ url }) => newEndpoint("base-sepolia", `${url}/v2/${KEY}`))
  service.ctx.chain.networks.splice(0, 1, { ...paperNetwork, endpoints })
  await ensureCursor(service.ctx, network())
}

async function round(): Promise<void> {
  service.advance(service.ctx.settings.verifyIntervalMs)
  for (const endpoint of network().endpoints) endpoint.silentUntil = 0
  await verifyRound(service.ctx, network())
}

async function paywall(): Promise<{ id: string; payTo: string }> {
  const { body } = await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })
  return (await service.call("GET", `/api/paywalls/${body.id}`)).body
}

const TOO_MANY = "Batch of more than 3 requests are not allowed on free plan"
it.each([
  ["10 calls, by a word", 200, 10, "maximum 10 calls in 1 batch"],
  ["3 calls, by a word", 200, 3, TOO_MANY],
  ["3 calls, by a status", 400, 3, TOO_MANY],
  ["10 calls, by another status", 413, 10, "batch size limit exceeded"],
  ["3 calls, without a word about batches", 200, 3, "invalid request"],
  ["no list at all", 400, 0, "batch requests are not supported"],
])("confirms payments at a provider that takes %s", async (_, status, most, message) => {
  await serve(1)
  const { payTo } = await paywall()
  node().refuses = listed => (listed > most ? { status, message } : undefined)
  chain.pay([{ from: BUYER, to: payTo, value: 5_000_000n }])
  chain.mine(5)
  await round()
  await round()
  const states = await service.ctx.db.selectFrom("transfers").select("state").execute()
  expect(states).toEqual([{ state: "confirmed" }])
  // What it takes is known from then on: nothing is refused any more.
  let refused = 0
  const refuses = node().refuses
  node().refuses = listed => {
    const answer = refuses(listed)
    if (answer) refused++
    return answer
  }
  await round()
  expect(refused).toBe(0)
})

it("tries larger batches again after ten minutes, and keeps what fits", async () => {
  await serve(1)
  const endpoint = newEndpoint("base-sepolia", node().url)
  const calls = Array.from({ length: 50 }, () => ({ method: "eth_chainId", params: [] }))
  node().refuses = listed => (listed > 12 ? { status: 200, message: TOO_MANY } : undefined)
  expect((await batch(endpoint, calls)).length).toBe(50)
  expect(endpoint.entries).toBe(12)
  node().refuses = () => undefined
  const later = Date.now() + 600_001
  const clock = vi.spyOn(Date, "now").mockImplementation(() => later)
  await batch(endpoint, calls)
  clock.mockRestore()
  expect(endpoint.entries).toBe(24)
})

it("does not ask again in halves what is refused to whoever asks, nor learns from one that refuses everything", async () => {
  await serve(1)
  const endpoint = newEndpoint("base-sepolia", node().url)
  const calls = Array.from({ length: 8 }, () => ({ method: "eth_chainId", params: [] }))
  node().refuses = () => ({ status: 200, message: "daily request count exceeded, request rate limited" })
  node().requests = 0
  await expect(batch(endpoint, calls)).rejects.toThrow("daily request count exceeded, request rate limited")
  expect([node().requests, endpoint.entries]).toEqual([1, 50])
  node().refuses = () => ({ status: 400, message: "invalid request" })
  await expect(batch(endpoint, calls)).rejects.toThrow("HTTP 400: invalid request")
  expect(endpoint.entries).toBe(50)
})

it("says in the log, the alarm and the error of a round what a provider refuses, without its key", async () => {
  await serve(3)
  await paywall()
  const message = `project ${KEY} has exceeded its quota, see https://provider.example/${KEY}`
  node().refuses = () => ({ status: 200, message })
  for (let i = 0; i < 3; i++) {
    await round()
    service.advance(20_000)
  }
  const words = "RPC endpoint 1 of 3 does not answer"
  const answer = "project … has exceeded its quota, see …"
  expect(lines.filter(({ level }) => level === "error")).toMatchObject([{ msg: words, answer }])
  const { body } = await service.call("GET", "/readyz")
  expect(body.alarms).toEqual([`base-sepolia: ${words}: ${answer}`])
  for (const each of nodes) each.refuses = node().refuses
  await expect(round()).rejects.toThrow(`no endpoint may vote (endpoint 1: ${answer}; endpoint 2: ${answer}`)
  expect(JSON.stringify(lines)).not.toContain(KEY)
})
