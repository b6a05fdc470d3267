// Of an address that gets thousands of transfers the greatest are read, and the others ended in parts; a buyer who pays is settled before them.
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { sql } from "kysely"
import { decodeFunctionData, encodeFunctionResult, type Hex, multicall3Abi } from "viem"
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { settleDue } from "./settle.ts"

const DUST = 7_000
/** How many undecided transfers of one session, or one payer, the code reads, and how many due ones one transaction ends. */
const READ = 2_000
const ENDED = 5_000
let service: TestService
let key: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
afterEach(() => vi.restoreAllMocks())
beforeEach(async () => {
  // Batches alone bound a round here, not its fifteen seconds, which may pass on a busy machine.
  vi.spyOn(performance, "now").mockReturnValue(performance.now())
  await service.empty()
  await service.merchant("shop")
  key = (await service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "shop" })).body.key
})

const db = () => service.ctx.db

async function newSession(): Promise<Row<"deposits">> {
  const made = await service.call("POST", "/api/checkouts", { amount: 5 }, { headers: { "x-api-key": key } })
  return await db().selectFrom("deposits").selectAll().where("resource_id", "=", made.body.id).executeTakeFirstOrThrow()
}

/** Stores `n` confirmed transfers, in chain order from a block on, of one sender or of `n` senders. */
const arrive = (deposit: Row<"deposits">, n: number, value: bigint, block: number, from: Address | "many") =>
  sql`insert into transfers (chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number,
      block_hash, log_index, block_time, state, run_at, created_at)
    select ${paperNetwork.chainId}, '0x' || lpad(to_hex(n + ${block}::int), 64, 'd'), ${paperNetwork.token.address},
      ${deposit.address}, 0, ${deposit.id}, case when ${from} = 'many' then '0x' || lpad(to_hex(n), 40, 'e') else ${from} end,
      ${value}, ${block}, '0x' || repeat('1', 64), n, at, 'confirmed', at, at
    from generate_series(1, ${n}::int) n, (values (${service.ctx.now()}::timestamptz)) as t (at)`.execute(db())

const sessionOf = (deposit: Row<"deposits">) =>
  db().selectFrom("checkout_sessions").selectAll().where("id", "=", deposit.resource_id).executeTakeFirstOrThrow()

const dueOf = async (deposit: Row<"deposits">): Promise<number> =>
  (
    await db()
      .selectFrom("transfers")
      .select("id")
      .where("deposit_id", "=", deposit.id)
      .where("run_at", "is not", null)
      .execute()
  ).length

/** A node whose sanctions oracle lists nobody; calls `asked` before each answer. */
async function startOracle(asked: () => Promise<void>) {
  const answer = async ({ id, params }: { id: number; params: [{ data: Hex }] }) => {
    await asked()
    const { args } = decodeFunctionData({ abi: multicall3Abi, data: params[0].data })
    const result = (args as unknown as [unknown[]])[0].map(() => ({
      success: true,
      returnData: `0x${"0".repeat(64)}` as Hex,
    }))
    const data = encodeFunctionResult({ abi: multicall3Abi, functionName: "aggregate3", result })
    return { jsonrpc: "2.0", id, result: data }
  }
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk)
    const entries = [JSON.parse(Buffer.concat(chunks).toString())].flat()
    response.end(JSON.stringify(await Promise.all(entries.map(answer))))
  })
  await new Promise<void>(resolve => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, stop: () => new Promise(resolve => server.close(resolve)) }
}

const payerA = `0x${"a1".repeat(20)}` as Address
const payerB = `0x${"a2".repeat(20)}` as Address

const paymentsOf = (deposit: Row<"deposits">) =>
  db()
    .selectFrom("payments")
    .selectAll()
    .where("resource_id", "=", deposit.resource_id)
    .orderBy("created_at")
    .orderBy("id")
    .execute()
const inflowOf = async ({ id }: Row<"deposits">) =>
  (await db().selectFrom("deposit_books").selectAll().where("deposit_id", "=", id).executeTakeFirst())?.inflow
const openSum = async (deposit: Row<"deposits">): Promise<bigint> =>
  (await paymentsOf(deposit)).filter(({ status }) => status === "open").reduce((sum, { amount }) => sum + amount, 0n)

it.each([
  ["one sender", payerB],
  ["as many senders", "many"],
] as const)("7,000 transfers of %s are ended in parts; who pays is first, there and elsewhere", async (_, from) => {
  const flooded = await newSession()
  const other = await newSession()
  const later = await newSession()
  await arrive(flooded, DUST, 1n, 1_000, from)
  // The payer of the flooded session comes after all the dust, and another pays elsewhere.
  await arrive(flooded, 1, 5_000_000n, 90_000, payerA)
  await arrive(other, 1, 5_000_000n, 91_000, payerA)
  await settleDue(service.ctx, paperNetwork)
  expect((await sessionOf(flooded)).status).toBe("confirmed")
  expect((await sessionOf(other)).status).toBe("confirmed")
  // Paid while the flood is being ended.
  await arrive(later, 1, 5_000_000n, 92_000, payerA)
  let rounds = 1
  while ((await dueOf(flooded)) > 0 && rounds < 10) {
    await settleDue(service.ctx, paperNetwork)
    rounds++
    expect((await sessionOf(later)).status).toBe("confirmed")
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  }
  expect(rounds).toBe(2)
  // The greatest that were read: with the payment, and as many beside it.
  expect(await sessionOf(flooded)).toMatchObject({ received: 5_000_000n + BigInt(2 * READ - 1), exception: "overpaid" })
  expect((await paymentsOf(flooded)).filter(({ status }) => status === "granted")).toMatchObject([
    // In chain order, together with the dust before it.
    { amount: 5_000_000n + BigInt(READ - 1), payer: payerA },
  ])
  expect(await openSum(flooded)).toBe(from === "many" ? 500n : BigInt(READ))
  const events = await db().selectFrom("events").select("id").where("type", "=", "payment.exception").execute()
  expect(events.length).toBe(from === "many" ? 20 : 1)
  expect(await inflowOf(flooded)).toBe(5_000_000n + BigInt(DUST))
})

it("what was not read waits in the books, and is read once the merchant has decided about what was", async () => {
  const flooded = await newSession()
  await arrive(flooded, READ + 10, 2n, 1_000, payerB)
  await arrive(flooded, 10, 1n, 20_000, payerB)
  await settleDue(service.ctx, paperNetwork)
  expect([await dueOf(flooded), await openSum(flooded)]).toEqual([0, BigInt(2 * READ)])
  const [{ id } = { id: "" }] = await paymentsOf(flooded)
  const to = { address: payerA }
  const back = await service.call("POST", `/api/console/payments/${id}/return`, to, { as: "shop" })
  expect(back.status).toBe(200)
  service.advance(60_000)
  await settleDue(service.ctx, paperNetwork)
  expect(await paymentsOf(flooded)).toMatchObject([
    { status: "returned", amount: BigInt(2 * READ) },
    { status: "open", amount: 20n + 10n },
  ])
  expect(await inflowOf(flooded)).toBe(BigInt(2 * (READ + 10) + 10))
  expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
})

it("dust that comes later, and more of it each time, keeps its payment; it is notified as its amount changes", async () => {
  const flooded = await newSession()
  for (let n = 1; n <= 3; n++) {
    await arrive(flooded, READ, BigInt(n), 10_000 * n, payerB)
    await settleDue(service.ctx, paperNetwork)
    // Those of before are not read any more, and stay claimed.
    expect(await openSum(flooded)).toBe(BigInt((READ * n * (n + 1)) / 2))
    await arrive(flooded, 5, 1n, 100_000 * n, payerB)
    await settleDue(service.ctx, paperNetwork)
    const events = await db().selectFrom("events").select("id").where("type", "=", "payment.exception").execute()
    expect([(await paymentsOf(flooded)).length, events.length]).toEqual([1, n])
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  }
})

it.each(["checkouts", "paywalls"])(
  "what one endpoint alone makes up, at %s, pushes out nothing that both report",
  async what => {
    const body = what === "checkouts" ? { amount: 5 } : { name: "a", price: 5 }
    const { id } = (await service.call("POST", `/api/console/${what}`, body, { as: "shop" })).body
    const deposit = await db()
      .selectFrom("deposits")
      .selectAll()
      .where("resource_id", "=", id)
      .executeTakeFirstOrThrow()
    await arrive(deposit, READ + 1, 900_000_000n, 1_000, payerA)
    await db().updateTable("transfers").set({ single_source: true }).execute()
    await arrive(deposit, 1, 5_000_000n, 90_000, payerA)
    service.advance(11 * 60_000)
    await settleDue(service.ctx, paperNetwork)
    expect(await paymentsOf(deposit)).toMatchObject([{ status: "granted", amount: 5_000_000n }])
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  },
)

it("has the network scanned again at once while more waits, and a flood does not keep its checkout open", async () => {
  const flooded = await newSession()
  await arrive(flooded, ENDED + 2, 1n, 1_000, payerB)
  const next = new Date(service.ctx.now().getTime() + 3_600_000)
  const block_hash = `0x${"1".repeat(64)}` as const
  await db()
    .insertInto("cursors")
    .values({
      chain_id: paperNetwork.chainId,
      block_number: 1n,
      block_hash: block_hash as never,
      block_time: new Date(next.getTime() + 864_000_000),
      finalized_number: 1n,
      run_at: next,
    })
    .execute()
  await db()
    .updateTable("checkout_sessions")
    .set({ expires_at: new Date(service.ctx.now().getTime() - 1) })
    .execute()
  const runAt = async () => (await db().selectFrom("cursors").select("run_at").executeTakeFirstOrThrow()).run_at
  await settleDue(service.ctx, paperNetwork)
  expect(await sessionOf(flooded)).toMatchObject({ status: "expired", received: BigInt(READ) })
  expect((await runAt()).getTime()).toBeLessThan(next.getTime())
  await db().updateTable("cursors").set({ run_at: next }).execute()
  await settleDue(service.ctx, paperNetwork)
  expect([await runAt(), await dueOf(flooded)]).toEqual([next, 0])
})

it("who pays is settled before the senders of a flood are screened", async () => {
  const flooded = await newSession()
  const paid = await newSession()
  await arrive(flooded, 600, 1n, 1_000, "many")
  await arrive(paid, 1, 5_000_000n, 90_000, payerA)
  const seen: string[] = []
  const oracle = await startOracle(async () => void seen.push((await sessionOf(paid)).status))
  const endpoints = [newEndpoint(paperNetwork.name, oracle.url)]
  const network = { ...paperNetwork, endpoints, sanctionsOracle: `0x${"5a".repeat(20)}` as Address }
  const [before] = service.ctx.chain.networks.splice(0, 1, network)
  try {
    await settleDue(service.ctx, network)
  } finally {
    service.ctx.chain.networks.splice(0, 1, before as typeof network)
    await oracle.stop()
  }
  // One oracle call for the payer, two for the flood.
  expect(seen).toEqual(["pending", "confirmed", "confirmed"])
  expect((await sessionOf(flooded)).received).toBe(600n)
})
