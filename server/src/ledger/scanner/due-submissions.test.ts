// Anyone may submit hashes of no transaction, as many as he has addresses: they delay nobody who submits a real one.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { newHash, ScriptedChain, type ScriptedNode, startNode } from "../../../test/node.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import { newEndpoint } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { verifyRound } from "../settlement/verify-payments.ts"
import { ensureCursor } from "./scan-round.ts"

let service: TestService
let chain: ScriptedChain
let node: ScriptedNode
let floodedId: string
const BUYER = `0x${"b".repeat(40)}` as Address
const MADE_UP = 1_000

beforeAll(async () => {
  service = await startService()
})
afterAll(async () => {
  await service.stop()
  await node?.stop()
})
beforeEach(async () => {
  await node?.stop()
  await service.empty()
  await service.merchant("shop")
  chain = new ScriptedChain(service.ctx.now())
  node = await startNode(chain)
  service.ctx.chain.networks.splice(0, 1, { ...paperNetwork, endpoints: [newEndpoint("base-sepolia", node.url)] })
  await ensureCursor(service.ctx, network())
  floodedId = (await paywall("Flooded")).id
  await submit(floodedId, newHash())
  await round(0)
  // As many more, looked up once already, and all due before anybody else's.
  await sql`insert into submissions (resource_id, chain_id, tx_hash, address, by_sender, status, message, attempts, run_at, submitted_at, updated_at)
    select resource_id, chain_id, '0xe' || lpad(to_hex(n), 63, '0'), address, by_sender, status, message, attempts,
      run_at - interval '1 hour', submitted_at, updated_at
    from submissions, generate_series(1, ${sql.lit(MADE_UP)}) n`.execute(service.ctx.db)
})

const network = (): Network => service.ctx.chain.networks[0] ?? paperNetwork
async function paywall(name: string): Promise<{ id: string; payTo: string }> {
  const { body } = await service.call("POST", "/api/console/paywalls", { name, price: 5 }, { as: "shop" })
  return (await service.call("GET", `/api/paywalls/${body.id}`)).body
}
const submit = (id: string, txHash: Hash) => service.call("POST", `/api/paywalls/${id}/pay`, { txHash, address: BUYER })
async function round(blocks: number): Promise<void> {
  chain.mine(blocks)
  service.advance(service.ctx.settings.verifyIntervalMs)
  for (const endpoint of network().endpoints) endpoint.silentUntil = 0
  await verifyRound(service.ctx, network())
}
const stateOf = async (id: string, hash: Hash) =>
  (await service.call("GET", `/api/paywalls/${id}/payments/${hash}?address=${BUYER}`)).body
const lookedUp = async (times: number) =>
  (await service.ctx.db.selectFrom("submissions").select("tx_hash").where("attempts", "=", times).execute()).length

it("a payment is granted in the two rounds that it takes without them", async () => {
  const film = await paywall("Film")
  const { hash } = chain.pay([{ from: BUYER, to: film.payTo, value: 5_000_000n }])
  await submit(film.id, hash)
  await round(10)
  await round(1)
  expect(await stateOf(film.id, hash)).toMatchObject({ status: "granted" })
})

it("a transaction that pays nothing is refused by the next round, at the flooded paywall too, and the others get their turn", async () => {
  const film = await paywall("Film")
  const hashes = [newHash(), newHash()] as const
  for (const hash of hashes) chain.pay([{ from: BUYER, to: `0x${"e".repeat(40)}`, value: 5_000_000n }], hash)
  await submit(film.id, hashes[0])
  await submit(floodedId, hashes[1])
  await round(10)
  expect(await stateOf(film.id, hashes[0])).toMatchObject({ status: "failed" })
  expect(await stateOf(floodedId, hashes[1])).toMatchObject({ status: "failed" })
  expect(await lookedUp(2)).toBe(98)
})

it("new hashes of no transaction leave half of each round to those that were looked up before", async () => {
  await sql`update submissions set attempts = 0 where tx_hash ~ '[0-7]$'`.execute(service.ctx.db)
  await round(1)
  expect(await lookedUp(2)).toBe(50)
})
