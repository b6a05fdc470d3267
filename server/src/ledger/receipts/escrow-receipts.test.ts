// Receipts of an escrow's calls: each capture, release and refund has one that verifies, and a reorg takes it back.
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { open, readReceipt } from "../../../../verify/src/format.ts"
import { type Escrows, escrowsOn } from "../../../test/escrow.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { receiptsOn } from "../../../test/receipts.ts"

let rig: PayoutRig
let on: Escrows
let receipts: ReturnType<typeof receiptsOn>
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
beforeAll(async () => {
  rig = await startPayoutRig({ dataDir, receipts: { batchMs: 1_000, anchorMs: 1_000 } })
  on = await escrowsOn(rig)
  receipts = receiptsOn(rig)
})
afterAll(async () => {
  await rig?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})
beforeEach(() => on.begin())

const ofSession = (id: string) =>
  rig.service.ctx.db.selectFrom("receipts").selectAll().where("resource_id", "=", id).orderBy("n").execute()
const post = async (path: string, body: object) => {
  const answer = await rig.service.call("POST", `/api/console/${path}`, body, { as: "shop" })
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300)
}

/** What the newest receipt about a call says, and what its verification answers alone, and where the factory is named. */
async function read(about: string) {
  const file = await receipts.saved(about)
  const { body } = await readReceipt(await open(file.jwe, file.key))
  const alone = await receipts.answers(file)
  const { depositFactory } = rig.network
  return { body, answers: [alone, await receipts.answers(file, receipts.nodes(), depositFactory)] }
}

/** An escrow's money goes to a wallet, so no receipt names a factory, and there are no terms to check. */
const VERIFIED = ["y-y-y--", "yyyyy--"]

it("a capture and its refund have one each, which verify and say who was paid", async () => {
  const { id, buyer } = await on.paid("5.00")
  await on.allow(5_000_000n)
  await post("payments/refund", { sessionId: id, amount: "2.00" })
  await on.settle()
  const rows = await ofSession(id)
  expect(rows.map(({ type, amount }) => [type, amount])).toEqual([
    ["capture", 5_000_000n],
    ["refund", 2_000_000n],
  ])
  await receipts.finish()
  const [capture, refund] = await Promise.all(rows.map(({ about }) => read(about)))
  const authId = (await rig.service.ctx.db.selectFrom("escrows").select("auth_id").executeTakeFirstOrThrow()).auth_id
  expect(capture?.body).toMatchObject({
    type: "capture",
    seq: 1,
    payer: buyer,
    escrow: { address: on.escrow.address, authId },
    transfers: [{ to: on.merchant, amount: "5000000" }],
  })
  expect(refund?.body).toMatchObject({ type: "refund", seq: 2, transfers: [{ to: buyer, amount: "2000000" }] })
  expect([capture?.answers, refund?.answers]).toEqual([VERIFIED, VERIFIED])
})

it("a release has one, and nothing has one that was only reserved", async () => {
  const { id, buyer } = await on.paid("3.00", "manual")
  expect(await ofSession(id)).toEqual([])
  await post("payments/void", { sessionId: id })
  await on.settle()
  const rows = await ofSession(id)
  expect(rows.map(({ type, amount }) => [type, amount])).toEqual([["void", 3_000_000n]])
  await receipts.finish()
  const { body, answers } = await read(rows[0]?.about ?? "")
  expect(body).toMatchObject({ type: "void", transfers: [{ to: buyer, amount: "3000000" }] })
  expect(answers).toEqual(VERIFIED)
})
