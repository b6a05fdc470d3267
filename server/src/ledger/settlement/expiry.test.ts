// A checkout expires when the chain has been read beyond its time, and not by a clock alone.
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { type Life, lifeOf } from "../../../test/life.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { settleDue } from "./settle.ts"

const MINUTE = 60_000
let rig: PayoutRig
let life: Life
let key: string
beforeAll(async () => {
  rig = await startPayoutRig()
  life = lifeOf(rig)
})
afterAll(() => rig.stop())
beforeEach(async () => {
  await life.begin()
  key = (await rig.service.call("POST", "/api/console/api-keys", { name: "Server" }, { as: "shop" })).body.key
  // Each block that is mined at once puts the chain's clock further ahead.
  const { timestamp } = await rig.anvil.client.getBlock()
  const ahead = Number(timestamp) * 1_000 + 1_000 - rig.service.ctx.now().getTime()
  if (ahead > 0) rig.service.advance(ahead)
  await life.advance(1_000)
})

const start = async () =>
  (
    await rig.service.call(
      "POST",
      "/api/checkouts",
      { amount: "0.60", expiresIn: 300 },
      { headers: { "x-api-key": key } },
    )
  ).body as { id: string; payTo: string; expiresAt: string }

const statusOf = async (id: string) => (await rig.service.call("GET", `/api/pay/status/${id}`)).body.status

/** Runs rounds a minute apart by the service's clock; the chain's clock follows if `withChain`. */
async function rounds(count: number, withChain = true): Promise<void> {
  for (let i = 0; i < count; i++) {
    if (withChain) await life.advance(MINUTE)
    else rig.service.advance(MINUTE)
    await life.verify()
  }
}

it("paid in time while no node answers for logs does not expire first: it is confirmed when they do", async () => {
  const session = await start()
  await life.verify()
  rig.proxy.spoil = (method, _params, result) => (method === "eth_getLogs" ? null : result)
  await life.send(session.payTo.toLowerCase() as Address, 600_000n)
  await rounds(8)
  expect(await statusOf(session.id)).toBe("pending")
  rig.proxy.spoil = (_method, _params, result) => result
  await rounds(2)
  expect(await statusOf(session.id)).toBe("confirmed")
  const emitted = await rig.service.ctx.db.selectFrom("events").select("type").execute()
  expect(emitted.map(({ type }) => type)).not.toContain("checkout.expired")
})

it("does not expire on a chain that stands still, which may go on with blocks of an earlier time", async () => {
  const paid = await start()
  const unpaid = await start()
  await life.verify()
  const { timestamp } = await rig.anvil.client.getBlock()
  await rounds(8, false)
  expect([await statusOf(paid.id), await statusOf(unpaid.id)]).toEqual(["pending", "pending"])
  // A block that is made much later, but has a time before the expiry.
  await rig.anvil.client.setNextBlockTimestamp({ timestamp: timestamp + 60n })
  await life.send(paid.payTo.toLowerCase() as Address, 600_000n)
  await life.verify()
  await life.verify()
  expect([await statusOf(paid.id), await statusOf(unpaid.id)]).toEqual(["confirmed", "pending"])
  await rounds(2)
  expect(await statusOf(unpaid.id)).toBe("expired")
})

it("after an upgrade expires once a round has stored the time of the block that was read last", async () => {
  const session = await start()
  await life.verify()
  await rounds(6)
  await rig.service.ctx.db.updateTable("cursors").set({ block_time: null }).execute()
  await rig.service.ctx.db.updateTable("checkout_sessions").set({ status: "pending" }).execute()
  rig.service.advance(MINUTE)
  await rig.service.ctx.db.updateTable("checkout_sessions").set({ run_at: rig.service.ctx.now() }).execute()
  await settleDue(rig.service.ctx, rig.network)
  expect(await statusOf(session.id)).toBe("pending")
  await rig.service.ctx.db.updateTable("checkout_sessions").set({ run_at: rig.service.ctx.now() }).execute()
  await life.verify()
  expect(await statusOf(session.id)).toBe("expired")
  expect((await rig.service.ctx.db.selectFrom("cursors").select("block_time").executeTakeFirst())?.block_time).not.toBe(
    null,
  )
})
