// Alarms about receipts: one that waits too long, and a network without the contract that they are written to.
import { sql } from "kysely"
import { afterAll, beforeAll, expect, it } from "vitest"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { anchorDeployment } from "../../platform/chain/receipt-anchor.ts"
import { checkReceiptAnchor, checkReceipts } from "./check-receipts.ts"

let rig: PayoutRig
beforeAll(async () => {
  rig = await startPayoutRig()
  await rig.empty()
})
afterAll(() => rig?.stop())

const query = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(rig.service.ctx.db)).rows

const check = (zerog?: object) => {
  const { settings } = rig.service.ctx
  return checkReceipts({ receipts: { ...settings.receipts, zerog: zerog as never } }, query)
}

it("a receipt that has waited for more than an hour is an alarm", async () => {
  await rig.paid(await rig.sell(), 1_000_000n)
  await query("update receipts set settled_at = now() - interval '59 minutes'")
  expect(await check()).toMatchObject([{ level: "ok" }])
  await query("update receipts set settled_at = now() - interval '61 minutes'")
  expect(await check()).toMatchObject([
    { level: "alarm", check: "receipts", message: expect.stringMatching(/^1 receipts have/) },
  ])
})

it("a file that 0G does not have after an hour is an alarm where files are stored there, and not elsewhere", async () => {
  const root = `0x${"1".repeat(64)}`
  await query("update receipts set settled_at = now()")
  await query(
    "insert into receipt_keys (id, chain_id, factory, public_key, sealed, created_at) values ('k', 1, '0x1111111111111111111111111111111111111111', '{}', '', now())",
  )
  await query(`insert into receipt_batches (root, key_id, chain_id, receipts, size, stored_at, created_at)
    values ('${root}', 'k', 1, 1, 256, now(), now() - interval '61 minutes')`)
  expect((await check()).map(({ level }) => level)).toEqual(["ok"])
  expect(await check({})).toMatchObject([{ level: "ok" }, { level: "alarm", check: "receipt_files" }])
})

it("a network without the contract is an alarm where roots are written to the chain, and not where none are", async () => {
  const { service, network, proxy, anvil } = rig
  const { settings, signal } = service.ctx
  const of = (anchorMs: number | undefined) =>
    checkReceiptAnchor({
      settings: { ...settings, receipts: { ...settings.receipts, anchorMs } },
      network: { ...network, rpcUrls: [proxy.url] } as never,
      now: service.ctx.now,
      signal,
      faulty: new Set(),
    })
  expect(await of(1_000)).toMatchObject([{ level: "ok", check: "receipt_anchor" }])
  await anvil.client.setCode({ address: anchorDeployment.address, bytecode: "0x" })
  await anvil.client.mine({ blocks: 5 })
  expect(await of(1_000)).toMatchObject([{ level: "alarm", check: "receipt_anchor" }])
  expect(await of(undefined)).toEqual([])
})
