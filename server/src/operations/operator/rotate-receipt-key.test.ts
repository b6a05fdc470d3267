// A new key for receipts: no receipt waits for it, each key is registered before it signs and revoked when all that it signed is
// written to the chain, and the merchant's file still proves itself.
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { toEventSelector } from "viem"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { openNode } from "../../../../verify/src/rpc.ts"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { receiptsOn } from "../../../test/receipts.ts"
import { anchorDeployment } from "../../platform/chain/receipt-anchor.ts"

const ALL = "yyyyyyy"
let rig: PayoutRig
let on: ReturnType<typeof receiptsOn>
let operator: Operator
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
beforeAll(async () => {
  rig = await startPayoutRig({ dataDir, receipts: { batchMs: 1_000, anchorMs: 1_000 } })
  on = receiptsOn(rig)
  operator = openOperator(rig)
})
afterAll(async () => {
  await operator?.stop()
  await rig?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})
beforeEach(() => rig.empty())

const db = () => rig.service.ctx.db
const rotate = () => operator.ask("/rotate-receipt-key", { network: "base-sepolia", reason: "a year is over" })
const keys = () => db().selectFrom("receipt_keys").selectAll().orderBy("created_at").execute()
const signers = async () =>
  (await db().selectFrom("receipt_batches").select("key_id").orderBy("n").execute()).map(({ key_id }) => key_id)
/** Which keys the chain calls revoked. */
async function revoked(): Promise<string[]> {
  const node = openNode(rig.anvil.rpcUrl)
  const newest = Number((await node.block("latest"))?.number)
  const logs = await node.logs(anchorDeployment.address, [TOPIC], 0, newest)
  return logs.map(({ topics }) => Buffer.from((topics[2] ?? "0x").slice(2), "hex").toString("base64url"))
}
/** Of `Revoked(address,bytes32)`. */
const TOPIC = toEventSelector("Revoked(address,bytes32)")

it("signs once it is registered; the key before it signs meanwhile, and is revoked when all it signed is written", async () => {
  const shop = await rig.sell()
  await rig.paid(shop, 1_000_000n)
  await on.finish()
  expect((await rotate()).status).toBe(200)
  const [first, second] = (await keys()).map(({ id }) => id)
  // The new key has no call yet: what is due is signed by the one before it, and does not wait.
  await rig.paid(shop, 1_000_001n)
  await on.round()
  expect(await signers()).toEqual([first, first])
  const early = await rotate()
  expect([early.status, early.body.message]).toEqual([
    409,
    expect.stringContaining("is not registered on the chain yet"),
  ])
  await on.carryOut()
  rig.service.advance(2_000)
  await rig.paid(shop, 1_000_002n)
  await on.finish()
  expect(await signers()).toEqual([first, first, second])
  await on.finish()
  await on.finish()
  expect(await revoked()).toEqual([first])
  expect((await keys()).map(({ revoke_id }) => revoke_id !== null)).toEqual([true, false])
  expect(await on.answers(await on.exported(shop.deposit.merchant_id))).toBe(ALL)
  expect(await on.ownCallsShown()).toEqual([])
  expect((await operator.actions()).map(({ action, reason }) => [action, reason])).toEqual([
    ["rotate receipt key", "a year is over"],
  ])
})

it("is refused of a network that is not served", async () => {
  expect((await operator.ask("/rotate-receipt-key", { network: "base", reason: "r" })).status).toBe(409)
})
