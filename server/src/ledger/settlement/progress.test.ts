// Strangers decide how much is due, and one endpoint how long it takes to answer. Neither decides whether a round gets on, or
// when others are settled.
import { createServer, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import fc from "fast-check"
import { sql } from "kysely"
import { decodeFunctionData, encodeFunctionResult, type Hex, multicall3Abi } from "viem"
import { afterAll, afterEach, beforeAll, expect, it, vi } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { multicall } from "../../platform/chain/multicall.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Row } from "../../platform/db/schema.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { askUntil } from "../txmanager/simulate-on-each.ts"
import { settleDue } from "./settle.ts"

type Manner = "answers" | "hangs" | "fails" | "says nothing"

/** An endpoint that says that every address holds enough, or does not. */
async function startNode() {
  const node = { manner: "answers" as Manner, asked: 0, url: "", stop: async () => {} }
  const hanging = new Set<ServerResponse>()
  const answer = ({ id, params }: { id: number; params: [{ data: Hex }] }) => {
    const { args } = decodeFunctionData({ abi: multicall3Abi, data: params[0].data })
    const returnData: Hex = node.manner === "says nothing" ? "0x" : `0x${"0".repeat(48)}${"f".repeat(16)}`
    const result = (args as unknown as [unknown[]])[0].map(() => ({ success: true, returnData }))
    return { id, result: encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result }) }
  }
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    node.asked++
    if (node.manner === "hangs") return void hanging.add(response)
    if (node.manner === "fails") response.statusCode = 500
    response.end(JSON.stringify([JSON.parse(Buffer.concat(chunks).toString())].flat().map(answer)))
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  node.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  node.stop = async () => {
    for (const response of hanging) response.destroy()
    server.closeAllConnections()
    await new Promise(resolve => server.close(resolve))
  }
  return node
}

let service: TestService
let network: Network
let nodes: Awaited<ReturnType<typeof startNode>>[]
beforeAll(async () => {
  service = await startService()
  nodes = await Promise.all([1, 2, 3].map(startNode))
})
afterAll(async () => {
  await service.stop()
  for (const node of nodes) await node.stop()
})
afterEach(() => vi.restoreAllMocks())

const db = () => service.ctx.db
const round = () => settleDue(service.ctx, network)

/** Empties it, with new endpoints of these manners. */
async function begin(manners: readonly Manner[]): Promise<void> {
  await service.empty()
  nodes.forEach((node, i) => {
    Object.assign(node, { manner: manners[i], asked: 0 })
  })
  const endpoints = nodes.map(({ url }, i) => newEndpoint(paperNetwork.name, url, i + 1))
  network = { ...paperNetwork, endpoints }
  service.ctx.chain.networks.splice(0, 1, network)
}

async function merchant(name: string): Promise<void> {
  await service.merchant(name)
  // Whatever waits can be given back without the service, so that the chain is asked before it is granted.
  await service.call("PUT", "/api/console/settings", { approver: "wallet" }, { as: name })
}

async function sell(path: "checkouts" | "paywalls", as: string): Promise<Row<"deposits">> {
  const body = path === "checkouts" ? { amount: "5" } : { name: "a", price: "5" }
  const { id } = (await service.call("POST", `/api/console/${path}`, body, { as })).body
  return await db().selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
}

let transfers = 0
async function arrive(deposit: Row<"deposits">, value: bigint, from: string): Promise<void> {
  const now = service.ctx.now()
  const n = ++transfers
  const hash = `0x${n.toString(16).padStart(64, "0")}` as Hash
  const at = { block_number: BigInt(n), block_hash: hash, log_index: 0, block_time: now, created_at: now, run_at: now }
  const what = { token: network.token.address, from_address: from as Address, to_address: deposit.address, value }
  await db()
    .insertInto("transfers")
    .values({
      chain_id: network.chainId,
      tx_hash: hash,
      k: 0,
      deposit_id: deposit.id,
      state: "confirmed",
      ...what,
      ...at,
    })
    .execute()
}

const sender = (n: number) => `0x${n.toString(16).padStart(40, "e")}`

const statusOf = async ({ resource_id }: Row<"deposits">) =>
  (await db().selectFrom("checkout_sessions").select("status").where("id", "=", resource_id).executeTakeFirstOrThrow())
    .status

/** How many addresses have something to settle, and senders at paywalls. */
async function due(): Promise<number> {
  const { rows } = await sql`select from transfers where run_at <= ${service.ctx.now()}
    group by deposit_id, from_address`.execute(db())
  return rows.length
}

/** A clock on which whatever is done takes too long. */
function slowClock(): void {
  let now = 0
  vi.spyOn(performance, "now").mockImplementation(() => (now += 60_000))
}

interface Flood {
  /** For each merchant, how many of its checkouts and how many senders at its paywall are due. */
  merchants: { checkouts: number; senders: number }[]
  third: Manner
}

const floods = fc.record({
  merchants: fc.array(fc.record({ checkouts: fc.nat(9), senders: fc.nat(6) }), { minLength: 1, maxLength: 3 }),
  third: fc.constantFrom<Manner>("answers", "hangs", "fails", "says nothing"),
})

/** Dust twice at each checkout, so that the second could complete the open payment of the first; and at paywalls. */
async function fill({ merchants, third }: Flood): Promise<Row<"deposits">> {
  await begin(["answers", "answers", "answers"])
  const at: Row<"deposits">[] = []
  for (const [m, { checkouts }] of merchants.entries()) {
    await merchant(`m${m}`)
    for (let n = 0; n < checkouts; n++) at.push(await sell("checkouts", `m${m}`))
  }
  for (const deposit of at) await arrive(deposit, 1n, sender(1))
  while ((await due()) > 0) await round()
  for (const [n, node] of nodes.entries()) if (n === 2) node.manner = third
  for (const deposit of at) await arrive(deposit, 1n, sender(1))
  for (const [m, { senders }] of merchants.entries()) {
    const paywall = await sell("paywalls", `m${m}`)
    for (let n = 1; n <= senders; n++) await arrive(paywall, 1n, sender(n))
  }
  await merchant("other")
  const paid = await sell("checkouts", "other")
  await arrive(paid, 5_000_000n, sender(99))
  return paid
}

it("each round settles something, and another merchant's payment is among the first, though no round has time for more", async () => {
  await fc.assert(
    fc.asyncProperty(floods, async flood => {
      const paid = await fill(flood)
      slowClock()
      let rounds = 0
      for (let left = await due(); left > 0; rounds++) {
        await round()
        const now = await due()
        expect(now).toBeLessThan(left)
        left = now
        if (rounds === 1) expect(await statusOf(paid)).toBe("confirmed")
      }
      vi.restoreAllMocks()
      expect(await statusOf(paid)).toBe("confirmed")
      expect(await checkConsistency(service.ctx, network.chainId)).toEqual([])
    }),
    { numRuns: 10 },
  )
})

it("a flood at one merchant is no reason for another's payment to wait for a second round", async () => {
  const paid = await fill({ merchants: [{ checkouts: 30, senders: 10 }], third: "hangs" })
  await round()
  expect(await statusOf(paid)).toBe("confirmed")
})

it("an endpoint is asked once for all addresses of a part, however many are due", async () => {
  for (const checkouts of [2, 20]) {
    await fill({ merchants: [{ checkouts, senders: 0 }], third: "answers" })
    for (const node of nodes) node.asked = 0
    await round()
    expect(await due()).toBe(0)
    // The answers of two decide, so the third may not have been reached.
    expect(Math.max(...nodes.map(node => node.asked))).toBe(1)
  }
})

it("an endpoint that hangs is not waited for", async () => {
  await begin(["answers", "hangs", "hangs"])
  const calls = [multicall([{ to: network.token.address, data: "0x70a08231" }])]
  const { signal } = service.ctx
  const ask = (maxMs: number, enough: number) =>
    askUntil(network, calls, {
      signal,
      maxMs,
      read: ([result]) => result?.ok,
      isEnough: said => said.length >= enough,
    })
  // One answer is enough, and nothing else ends it.
  expect(await ask(2 ** 30, 1)).toEqual([true])
  expect(await ask(200, 2)).toEqual([true])
  // It answered too late, which is no failure.
  expect(network.endpoints.map(({ failures }) => failures)).toEqual([0, 0, 0])
})

it("what no quorum confirms waits by itself, less and less often, and is settled when they answer again", async () => {
  await fill({ merchants: [{ checkouts: 1, senders: 0 }], third: "answers" })
  const [waits] = await db().selectFrom("deposits").selectAll().orderBy("id").limit(1).execute()
  if (!waits) throw new Error("no deposit")
  // Enough to pay, if the first dust is still there.
  await arrive(waits, 4_999_999n, sender(1))
  for (const node of nodes.slice(1)) node.manner = "says nothing"
  const runAt = async () =>
    (await db().selectFrom("transfers").select("run_at").where("deposit_id", "=", waits.id).execute())
      .flatMap(({ run_at }) => run_at ?? [])
      .reduce((last, at) => Math.max(last, at.getTime() - service.ctx.now().getTime()), 0)
  const pauses: number[] = []
  const warned = vi.spyOn(service.ctx.log, "warn")
  const raised = vi.spyOn(service.ctx.log, "error")
  const words = "payments wait: too few endpoints say in time what their receiving addresses hold"
  for (let n = 0; n < 8; n++) {
    await round()
    expect(await statusOf(waits)).toBe("verifying")
    pauses.push(Math.round((await runAt()) / 1_000))
    service.advance(pauses.at(-1) === undefined ? 0 : (await runAt()) + 1_000)
  }
  expect(pauses).toEqual(pauses.toSorted((a, b) => a - b))
  expect([pauses[0], (pauses.at(-1) ?? 0) > 60, (pauses.at(-1) ?? 0) <= 600]).toEqual([30, true, true])
  const said = (spy: typeof warned) => spy.mock.calls.filter(([, text]) => text === words).length
  expect([said(warned), said(raised)]).toEqual([2, 6])
  for (const node of nodes) node.manner = "answers"
  await round()
  expect(await statusOf(waits)).toBe("confirmed")
})

it("merchants take turns, and in each turn those of most money and those that waited longest", async () => {
  await begin(["answers", "answers", "answers"])
  const [sessions] = service.ctx.sells.filter(({ prefix }) => prefix === "cs")
  const names = new Map<string, string>()
  for (const name of ["a", "b"]) await merchant(name)
  for (let n = 0; n < 4; n++) {
    const deposit = await sell("checkouts", "a")
    await arrive(deposit, BigInt(n + 1), sender(n))
    names.set(deposit.resource_id, `a${n}`)
    service.advance(1)
  }
  const other = await sell("checkouts", "b")
  await arrive(other, 1n, sender(9))
  names.set(other.resource_id, "b")
  service.advance(1)
  const groups = (await sessions?.due(service.ctx, network))?.groups ?? []
  // The oldest of `a` has the least money, as that of `b` has.
  expect(groups.map(({ resourceId }) => names.get(resourceId))).toEqual(["a3", "b", "a0", "a2", "a1"])
})
