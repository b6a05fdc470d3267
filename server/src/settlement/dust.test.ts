// An address that gets thousands of transfers takes many rounds, each bounded; a buyer who pays is settled before them.
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { sql } from "kysely"
import { decodeFunctionData, encodeFunctionResult, type Hex, multicall3Abi } from "viem"
import { afterAll, afterEach, beforeAll, beforeEach, expect, it, vi } from "vitest"
import { paperNetwork, startService, type TestService } from "../../test/service.ts"
import { newEndpoint } from "../chain/endpoints.ts"
import type { Address } from "../chain/hex.ts"
import type { Row } from "../db/schema.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { settleDue } from "./settle.ts"

const DUST = 7_000
/** How many transfers of one session the code settles in one transaction. */
const BATCH = 2_000
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

it.each([
  ["one sender", payerB],
  ["as many senders", "many"],
] as const)("7,000 transfers of %s are booked in parts; who pays is first, there and elsewhere", async (_, from) => {
  const flooded = await newSession()
  const other = await newSession()
  const later = await newSession()
  await arrive(flooded, DUST, 1n, 1_000, from)
  // The payer of the flooded session comes after all the dust, and another pays elsewhere.
  await arrive(flooded, 1, 5_000_000n, 90_000, payerA)
  await arrive(other, 1, 5_000_000n, 91_000, payerA)
  await settleDue(service.ctx, paperNetwork)
  expect(await dueOf(flooded)).toBe(DUST + 1 - BATCH)
  expect((await sessionOf(flooded)).status).toBe("confirmed")
  expect((await sessionOf(other)).status).toBe("confirmed")
  // Paid while the flood is being booked.
  await arrive(later, 1, 5_000_000n, 92_000, payerA)
  let rounds = 1
  while ((await dueOf(flooded)) > 0 && rounds < 10) {
    await settleDue(service.ctx, paperNetwork)
    rounds++
    expect((await sessionOf(later)).status).toBe("confirmed")
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  }
  expect(rounds).toBe(4)
  expect(await sessionOf(flooded)).toMatchObject({ received: 5_000_000n + BigInt(DUST), exception: "overpaid" })
  const payments = await db()
    .selectFrom("payments")
    .selectAll()
    .where("resource_id", "=", flooded.resource_id)
    .execute()
  expect(payments.filter(({ status }) => status === "granted")).toMatchObject([
    // In chain order, together with the transfers of its batch.
    { amount: 5_000_000n + BigInt(BATCH - 1), payer: payerA },
  ])
  const open = payments.filter(({ status }) => status === "open").reduce((sum, { amount }) => sum + amount, 0n)
  expect(open).toBe(from === "many" ? 500n : BigInt(DUST - BATCH + 1))
  const events = await db().selectFrom("events").select("id").where("type", "=", "payment.exception").execute()
  expect(events.length).toBe(from === "many" ? 20 : 3)
  const book = await db()
    .selectFrom("deposit_books")
    .selectAll()
    .where("deposit_id", "=", flooded.id)
    .executeTakeFirst()
  expect(book?.inflow).toBe(5_000_000n + BigInt(DUST))
})

it("has the network scanned again at once while more waits, and does not expire meanwhile", async () => {
  const flooded = await newSession()
  await arrive(flooded, BATCH + 1, 1n, 1_000, payerB)
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
  expect((await sessionOf(flooded)).status).toBe("verifying")
  expect((await runAt()).getTime()).toBeLessThan(next.getTime())
  await db().updateTable("cursors").set({ run_at: next }).execute()
  await settleDue(service.ctx, paperNetwork)
  expect(await runAt()).toEqual(next)
  expect(await sessionOf(flooded)).toMatchObject({ status: "expired", received: 0n + BigInt(BATCH + 1) })
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
