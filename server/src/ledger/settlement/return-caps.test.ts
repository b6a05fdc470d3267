// How much API keys, and a member with the role support, may return and accept in a day: one by one and in bulk, over tokens counted alone.
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Row } from "../../platform/db/schema.ts"
import { settleDue } from "./settle.ts"

const SAM = `per_${"s".repeat(24)}`
const OTHER = `0x${"0d".repeat(20)}` as Address
const back = `0x${"99".repeat(20)}`

let service: TestService
let deposit: Row<"deposits">
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  const shop = await service.merchant("shop")
  const { db } = service.ctx
  const { id } = (await service.call("POST", "/api/console/paywalls", { name: "a", price: 50 }, { as: "shop" })).body
  deposit = await db.selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
  const created_at = new Date()
  const terms = { role: "support", money_per_day: 10, created_at } as const
  await db.insertInto("persons").values({ id: SAM, iss: service.issuer.issuer, sub: "sam", created_at }).execute()
  await db
    .insertInto("members")
    .values({ merchant_id: shop, person_id: SAM, ...terms })
    .execute()
})

let hashes = 0
/** Payments that are too small, so that each waits for a decision; returns their ids, in the order of the amounts. */
async function open(...amounts: number[]): Promise<string[]> {
  const ids: string[] = []
  for (const amount of amounts) ids.push(await openIn(paperNetwork.token.address, amount))
  return ids
}
async function openIn(token: Address, amount: number): Promise<string> {
  const now = service.ctx.now()
  const tx_hash = `0x${(++hashes).toString(16).padStart(64, "0")}` as Hash
  const from = `0x${hashes.toString(16).padStart(40, "b")}` as Address
  await service.ctx.db
    .insertInto("transfers")
    .values({
      chain_id: paperNetwork.chainId,
      tx_hash,
      token,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: from,
      value: BigInt(amount * 100) * 10_000n,
      block_number: BigInt(hashes),
      block_hash: tx_hash,
      log_index: 0,
      block_time: now,
      state: "confirmed",
      run_at: now,
      created_at: now,
    })
    .execute()
  await service.call("POST", `/api/paywalls/${deposit.resource_id}/pay`, { txHash: tx_hash, address: from })
  await settleDue(service.ctx, paperNetwork)
  const { id } = await service.ctx.db
    .selectFrom("payments")
    .select("id")
    .where("tx_hash", "=", tx_hash)
    .where("status", "=", "open")
    .executeTakeFirstOrThrow()
  return id
}

type Caller = { as: string } | { headers: Record<string, string> }
const person: Caller = { as: "shop" }
const sam: Caller = { as: "sam" }
async function key(returnPerDay: number | null): Promise<Caller> {
  const body = { name: "Till", scopes: ["money"], limits: { returnPerDay } }
  const made = await service.call("POST", "/api/console/api-keys", body, { as: "shop" })
  expect(made.status, JSON.stringify(made.body)).toBe(201)
  return { headers: { "x-api-key": made.body.key } }
}
const give = (by: Caller, id = "", more: object = {}) =>
  service.call("POST", `/api/console/payments/${id}/return`, { address: back, ...more }, by)
const accept = (by: Caller, id = "") => service.call("POST", `/api/console/payments/${id}/accept`, {}, by)
const giveMany = async (by: Caller, ids: string[], more: Record<string, string> = {}) => {
  const headers = { ...("headers" in by ? by.headers : {}), ...more }
  const body = { returns: ids.map(id => ({ id, address: back })) }
  const answer = await service.call("POST", "/api/console/payments/return", body, { ...by, headers })
  expect(answer.status, JSON.stringify(answer.body)).toBe(200)
  return answer.body.data.map(({ error }: { error: { error: string } | null }) => error?.error ?? "returned")
}
const waiting = async () =>
  (await service.ctx.db.selectFrom("payments").select("id").where("status", "=", "open").execute()).length
const limits = (returnPerDay: number) =>
  service.call("PUT", "/api/console/settings/key-limits", { returnPerDay }, { as: "shop" })

describe("a key's cap on returns", () => {
  it("holds to the last unit, and what is refused still waits", async () => {
    const by = await key(10)
    const [six, four, one] = await open(6, 4, 1)
    expect([(await give(by, six)).status, (await give(by, four)).status]).toEqual([200, 200])
    expect(await give(by, one)).toMatchObject({
      status: 403,
      body: { error: "DAILY_LIMIT_REACHED", details: [{ path: "limits.returnPerDay" }] },
    })
    expect(await waiting()).toBe(1)
    expect((await service.ctx.db.selectFrom("key_spends").selectAll().execute()).length).toBe(2)
    service.advance(86_400_001)
    expect((await give(by, one)).status).toBe(200)
  })

  it("counts each of a list: those that fit are returned, and a repeated list returns nothing twice", async () => {
    const by = await key(10)
    const ids = await open(4, 4, 4, 2, 1)
    const expected = ["returned", "returned", "DAILY_LIMIT_REACHED", "returned", "DAILY_LIMIT_REACHED"]
    expect(await giveMany(by, ids, { "idempotency-key": "a" })).toEqual(expected)
    expect(await giveMany(by, ids, { "idempotency-key": "a" })).toEqual(expected)
    expect(await waiting()).toBe(2)
    const again = await giveMany(by, ids)
    expect(again).toEqual([
      "INVALID_OPERATION",
      "INVALID_OPERATION",
      "DAILY_LIMIT_REACHED",
      "INVALID_OPERATION",
      "DAILY_LIMIT_REACHED",
    ])
  })

  it("holds lists and single returns that come at once", async () => {
    const by = await key(10)
    const ids = await open(...Array.from({ length: 24 }, () => 1))
    const lists = [ids.slice(0, 8), ids.slice(8, 16)].map(list => giveMany(by, list))
    const single = ids.slice(16).map(async id => ((await give(by, id)).status === 200 ? "returned" : "refused"))
    const outcomes = (await Promise.all([...lists, Promise.all(single)])).flat()
    expect(outcomes.filter(outcome => outcome === "returned").length).toBe(10)
    expect(await waiting()).toBe(14)
  })

  it("is for each token alone", async () => {
    const by = await key(10)
    const [ten] = await open(10)
    await service.ctx.db
      .insertInto("tokens")
      .values({ chain_id: paperNetwork.chainId, address: OTHER, symbol: "USDC", decimals: 6, asked_at: new Date() })
      .execute()
    const foreign = await openIn(OTHER, 10)
    const more = await openIn(OTHER, 1)
    expect([(await give(by, ten)).status, (await give(by, foreign)).status]).toEqual([200, 200])
    expect((await give(by, more)).body.error).toBe("DAILY_LIMIT_REACHED")
  })

  it("gives back a return that failed, and forgets it when a person makes it again", async () => {
    const by = await key(10)
    const [ten, five] = await open(10, 5)
    expect((await give(by, ten)).status).toBe(200)
    expect((await give(by, five)).status).toBe(403)
    await service.ctx.db
      .updateTable("payments")
      .set({ status: "open", returned_at: null, returned_to: null })
      .where("id", "=", ten ?? "")
      .execute()
    expect((await give(by, five)).status).toBe(200)
    await service.ctx.db
      .deleteFrom("payouts")
      .where("payment_id", "=", ten ?? "")
      .execute()
    expect((await give(person, ten)).status).toBe(200)
    const spends = await service.ctx.db.selectFrom("key_spends").select("object_id").execute()
    expect(spends).toEqual([{ object_id: five }])
  })
})

describe("the cap on all keys", () => {
  it("holds over several keys, in bulk too, and no person", async () => {
    await limits(10)
    const one = await key(null)
    const two = await key(8)
    const ids = await open(6, 3, 3, 5, 20)
    expect((await give(one, ids[0])).status).toBe(200)
    expect(await giveMany(two, ids.slice(1, 4))).toEqual(["returned", "DAILY_LIMIT_REACHED", "DAILY_LIMIT_REACHED"])
    expect((await give(person, ids[4])).status).toBe(200)
    expect((await give(one, ids[2])).body.details[0].path).toBe("keyLimits.returnPerDay")
  })
})

describe("the limit of a member with the support role", () => {
  it("counts returns, one by one and in bulk, and acceptances together", async () => {
    const ids = await open(4, 3, 3, 2, 1)
    expect((await accept(sam, ids[0])).status).toBe(200)
    expect((await give(sam, ids[1])).status).toBe(200)
    expect(await giveMany(sam, ids.slice(2))).toEqual(["returned", "DAILY_LIMIT_REACHED", "DAILY_LIMIT_REACHED"])
    const refused = await accept(sam, ids[4])
    expect(refused).toMatchObject({ status: 403, body: { error: "DAILY_LIMIT_REACHED" } })
    expect(await waiting()).toBe(2)
    expect((await accept(person, ids[3])).status).toBe(200)
    service.advance(86_400_001)
    expect((await accept(sam, ids[4])).status).toBe(200)
  })

  it("is the limit of the moment of the decision", async () => {
    const ids = await open(5, 5, 5)
    expect((await give(sam, ids[0])).status).toBe(200)
    const set = { role: "support", moneyPerDay: 5 }
    expect((await service.call("PUT", `/api/console/team/${SAM}`, set, { as: "shop" })).status).toBe(200)
    expect((await give(sam, ids[1])).body.error).toBe("DAILY_LIMIT_REACHED")
    await service.call("PUT", `/api/console/team/${SAM}`, { ...set, moneyPerDay: 0 }, { as: "shop" })
    expect((await accept(sam, ids[2])).body.error).toBe("ROLE_REQUIRED")
  })
})
