// A scan that has stopped, or an endpoint that refuses logs, shows at once: in the log, the metrics and /readyz.
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { failed, ScriptedChain, type ScriptedNode, startNode } from "../../../test/node.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openLog } from "../../platform/log.ts"
import { registry } from "../../platform/metrics.ts"
import { loopsOf } from "../../worker.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { ensureCursor } from "./scan-round.ts"
import { scanAlarms } from "./watch-scan-lag.ts"

let service: TestService
let chain: ScriptedChain
let nodes: ScriptedNode[] = []
let lines: { level: string; msg: string; host?: string; reason?: string }[]
const BUYER = `0x${"b".repeat(40)}` as Address
const MINUTE = 60_000

beforeAll(async () => {
  service = await startService()
  service.ctx.log = openLog("info", { write: line => void lines.push(JSON.parse(line)) })
  service.ctx.settings.verifyIntervalMs = MINUTE
})
afterAll(async () => {
  await service.stop()
  for (const node of nodes) await node.stop()
})
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  lines = []
})
async function serve(count: number): Promise<void> {
  for (const node of nodes) await node.stop()
  chain = new ScriptedChain(service.ctx.now())
  nodes = await Promise.all(Array.from({ length: count }, () => startNode(chain)))
  const endpoints = nodes.map(({ url }) => newEndpoint("base-sepolia", `${url}/key-of-mine`))
  service.ctx.chain.networks.splice(0, 1, { ...paperNetwork, endpoints })
  await ensureCursor(service.ctx, network())
}

const network = (): Network => service.ctx.chain.networks[0] ?? paperNetwork
const refuse = (i: number) => {
  if (nodes[i]) nodes[i].hook = method => (method === "eth_getLogs" ? failed("method not allowed") : undefined)
}
const allow = (i: number) => {
  if (nodes[i]) nodes[i].hook = () => undefined
}
/** Lets a minute pass: thirty blocks by default, and a round. */
async function minute(blocks = 30): Promise<void> {
  chain.mine(blocks)
  service.advance(MINUTE)
  for (const endpoint of network().endpoints) endpoint.silentUntil = 0
  await verifyRound(service.ctx, network())
}
const ready = async () => {
  service.advance(1_001)
  return await service.call("GET", "/readyz")
}
const metric = async (name: string, reason?: string, endpoint?: string) => {
  const { values } = (await registry.getSingleMetric(name)?.get()) ?? { values: [] }
  return values.find(
    ({ labels }) =>
      (reason === undefined || labels.reason === reason) && (endpoint === undefined || labels.endpoint === endpoint),
  )?.value
}
async function paywall(): Promise<{ id: string; payTo: string }> {
  const { body } = await service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })
  return (await service.call("GET", `/api/paywalls/${body.id}`)).body
}
const transfers = async () => (await service.ctx.db.selectFrom("transfers").select("id").execute()).length

it("names the endpoint that refuses logs at once, by its host alone, and goes on with the others", async () => {
  await serve(3)
  const { payTo } = await paywall()
  await minute()
  expect((await ready()).body).toEqual({ status: "ready", alarms: [] })
  refuse(1)
  chain.pay([{ from: BUYER, to: payTo, value: 5_000_000n }])
  await minute()
  await minute()
  expect(await transfers()).toBe(1)
  const words = "RPC endpoint 2 of 3 refuses eth_getLogs"
  const host = new URL(nodes[1]?.url ?? "").hostname
  expect(lines.filter(line => line.level === "error")).toMatchObject([
    { reason: "logs", host, answer: "method not allowed", msg: words },
  ])
  expect(JSON.stringify(lines)).not.toContain("key-of-mine")
  expect(await ready()).toMatchObject({ status: 200, body: { alarms: [`base-sepolia: ${words}: method not allowed`] } })
  expect(await metric("sluice_rpc_alarm", "logs", "2")).toBe(1)
  allow(1)
  await minute()
  expect((await ready()).body.alarms).toEqual([])
  expect(lines.filter(line => line.msg === `no longer so: ${words}`).length).toBe(1)
  expect(await metric("sluice_rpc_alarm", "logs", "2")).toBe(0)
})

it("a scan that nothing is read for is an alarm beyond MAX_SCAN_LAG, in every process, until it has caught up", async () => {
  await serve(1)
  const { payTo } = await paywall()
  await minute()
  refuse(0)
  chain.pay([{ from: BUYER, to: payTo, value: 5_000_000n }])
  for (let i = 0; i < 9; i++) await minute()
  expect((await ready()).status).toBe(200)
  expect(await metric("sluice_scan_lag_blocks")).toBe(9 * 30 + 1)
  for (let i = 0; i < 5; i++) await minute()
  const words = "the scan of base-sepolia is 421 blocks behind and does not catch up"
  expect(await ready()).toMatchObject({ status: 200, body: { alarms: expect.arrayContaining([words]) } })
  expect(await metric("sluice_scan_stopped")).toBe(1)
  expect(lines.filter(line => line.msg === "the scan is behind by more blocks than MAX_SCAN_LAG").length).toBe(1)
  expect(await transfers()).toBe(0)
  allow(0)
  await minute()
  expect(await transfers()).toBe(1)
  expect(await ready()).toMatchObject({ status: 200, body: { alarms: [] } })
  expect(await metric("sluice_scan_stopped")).toBe(0)
  expect(await metric("sluice_scan_lag_blocks")).toBe(0)
})

it("a scan without a round says whether a worker begins rounds, and makes no process unready", async () => {
  await serve(1)
  await minute()
  const cursor = await service.ctx.db.selectFrom("cursors").select("looked_at").executeTakeFirstOrThrow()
  service.advance(5 * MINUTE + 16_000)
  const since = `base-sepolia has not been scanned since ${cursor.looked_at?.toISOString()}, so payments are not found`
  expect(await ready()).toMatchObject({ status: 200, body: { alarms: [`${since}: no worker starts a round`] } })
  expect(await metric("sluice_scan_stopped")).toBe(1)
  for (const node of nodes) node.hook = () => failed("down")
  await expect(verifyRound(service.ctx, network())).rejects.toThrow()
  expect(await ready()).toMatchObject({
    status: 200,
    body: { alarms: [`${since}: rounds start, but none ends`] },
  })
  allow(0)
  await minute()
  expect((await ready()).body.alarms).toEqual([])
  expect(await metric("sluice_scan_stopped")).toBe(0)
})

it("is judged by the interval of its worker; one with a shorter interval begins its round that much sooner", async () => {
  await serve(1)
  await minute()
  const { ctx } = service
  const shorter = { ...ctx, settings: { ...ctx.settings, verifyIntervalMs: 5_000 } }
  const verify = loopsOf(shorter).find(({ name }) => name === "verify base-sepolia")
  const lookedAt = async () =>
    (await ctx.db.selectFrom("cursors").select("looked_at").executeTakeFirstOrThrow()).looked_at
  const before = await lookedAt()
  service.advance(MINUTE - 10_000)
  expect(await scanAlarms(shorter)).toEqual([])
  await minute()
  expect(await lookedAt()).not.toEqual(before)
  const longer = await lookedAt()
  expect(await verify?.round(shorter)).toBeLessThanOrEqual(5_010)
  expect(await lookedAt()).toEqual(longer)
  service.advance(5_000)
  await verify?.round(shorter)
  expect(await lookedAt()).not.toEqual(longer)
  // Five of its intervals, which count as ten seconds at least.
  service.advance(49_000)
  expect(await scanAlarms(ctx)).toEqual([])
  service.advance(2_000)
  expect(await scanAlarms(ctx)).toEqual([expect.stringContaining("has not been scanned since")])
})

it("catching up after a long stop is an alarm and no reason to send nobody here", async () => {
  await serve(1)
  await paywall()
  await minute()
  // Nodes that take forty blocks at once: a round reads two hundred, while thirty are mined.
  for (const node of nodes)
    node.hook = (method, params) => {
      const [filter] = params as unknown as [{ fromBlock: string; toBlock: string }]
      const span = method === "eth_getLogs" ? Number(filter.toBlock) - Number(filter.fromBlock) + 1 : 0
      return span > 40 ? failed("the block range is too wide") : undefined
    }
  await minute(1_500)
  const statuses: number[] = []
  for (let rounds = 0; rounds < 30 && (await metric("sluice_scan_lag_blocks")) !== 0; rounds++) {
    const { status } = await ready()
    statuses.push(status)
    await minute()
  }
  expect(new Set(statuses)).toEqual(new Set([200]))
  expect(statuses.length).toBeGreaterThan(4)
  expect((await ready()).body.alarms).toEqual([])
})
