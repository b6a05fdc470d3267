// The read of `verify` where nothing is cached: many addresses in one statement, each with the same result as alone.
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { accessName, accessOf, readAccess } from "./read-access.ts"
import { publicPaywall } from "./submit-payment.ts"

let service: TestService
let paywalls: string[]
const txHash = `0x${"5f".repeat(32)}` as Hash
const ODD = ["", "pw_unknown", `a"b\\c,{} 'd`, "null"]

beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  await service.merchant("shop")
  const make = () => service.call("POST", "/api/console/paywalls", { name: "Film", price: 5 }, { as: "shop" })
  paywalls = [(await make()).body.id, (await make()).body.id]
})

/** Access of every kind to the first paywall, one for each address; returns them, and two that have none. */
async function everyKind(): Promise<Address[]> {
  const now = service.ctx.now().getTime()
  const ends = [null, new Date(now - 1_000), new Date(now + 3_600_000)]
  const kinds = ends.flatMap(expires_at => [null, 0, 1].map(calls_left => ({ expires_at, calls_left })))
  const addressOf = (n: number) => `0x${String(n).padStart(40, "a")}` as Address
  const rows = kinds.map((kind, n) => ({
    ...kind,
    paywall_id: paywalls[0] ?? "",
    address: addressOf(n),
    tx_hash: txHash,
  }))
  await service.ctx.db.insertInto("access").values(rows).execute()
  return Array.from({ length: kinds.length + 2 }, (_, n) => addressOf(n))
}

it("finds of many what it finds of each, and nothing of a paywall that does not exist", async () => {
  const addresses = await everyKind()
  const names = [...paywalls, ...ODD].flatMap(id => addresses.map(address => accessName(id, address)))
  const found = await readAccess(service.ctx, names)
  expect(found.size).toBe(paywalls.length * addresses.length)
  let open = 0
  for (const id of paywalls)
    for (const address of addresses) {
      const alone = await accessOf(service.ctx, await publicPaywall(service.ctx, id), address)
      expect(found.get(accessName(id, address))).toMatchObject({ paywall: { id }, access: alone })
      if (alone) open++
    }
  expect(open).toBe(2)
  const [whole] = await Promise.all(paywalls.slice(0, 1).map(id => publicPaywall(service.ctx, id)))
  const together = await Promise.all(addresses.map(address => whole && accessOf(service.ctx, whole, address)))
  expect(together).toEqual(addresses.map(address => found.get(accessName(paywalls[0] ?? "", address))?.access))
})

it("answers each of many requests at the same time for itself", async () => {
  const addresses = await everyKind()
  const verify = (id: string, address: string) =>
    service.call("GET", `/api/paywalls/${encodeURIComponent(id)}/verify?address=${address}`)
  const asked = [...paywalls, "pw_unknown"].flatMap(id => addresses.map(address => [id, address] as const))
  const answers = await Promise.all(asked.map(([id, address]) => verify(id, address)))
  expect(answers.map(({ status }) => status)).toEqual(asked.map(([id]) => (id === "pw_unknown" ? 404 : 200)))
  const opened = asked.filter((_, n) => answers[n]?.body.hasAccess).map(([_, address]) => address)
  expect(opened).toEqual([addresses[6], addresses[8]])
})

it("keeps the paywall's address watched, and writes nothing while it is", async () => {
  const { db } = service.ctx
  const [id = ""] = paywalls
  const deposit = () => db.selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
  const verify = () => service.call("GET", `/api/paywalls/${id}/verify?address=0x${"a".repeat(40)}`)
  const before = await deposit()
  expect((await verify()).body).toEqual({ hasAccess: false })
  const first = await deposit()
  expect(first.watched_until.getTime()).toBeGreaterThan(before.watched_until.getTime())
  await verify()
  expect(await deposit()).toEqual(first)
  service.advance(31 * 60_000)
  await verify()
  expect((await deposit()).watched_until.getTime()).toBeGreaterThan(first.watched_until.getTime())
})
