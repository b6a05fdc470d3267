// Files of receipts reach 0G by the payout engine's own lane: each is paid for once, uploaded, and proven to be there.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type Anvil, startAnvil } from "../../../../test/anvil.ts"
import { type PayoutRig, startPayoutRig } from "../../../../test/payouts.ts"
import { receiptsOn } from "../../../../test/receipts.ts"
import { signerOf } from "../../../../test/signer.ts"
import { PRICE, startZerog } from "../../../../test/zerog.ts"
import type { Row } from "../../../platform/db/schema.ts"
import { notifyDuePayments } from "../../settlement/notify-paid.ts"
import { payoutRound } from "../../txmanager/run-round.ts"
import { type Storage, storageOf } from "./storage.ts"
import { storageLane } from "./storage-lane.ts"
import { storageRound } from "./store-on-0g.ts"

const CHAIN_ID = 16_661
let rig: PayoutRig
let anvil: Anvil
let zerog: Awaited<ReturnType<typeof startZerog>>
let storage: Storage
let receipts: ReturnType<typeof receiptsOn>
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
beforeAll(async () => {
  anvil = await startAnvil({ chainId: CHAIN_ID })
  zerog = await startZerog(anvil)
  const settings = { chainId: CHAIN_ID, rpcUrls: [anvil.rpcUrl], flow: zerog.flow, indexer: zerog.indexer }
  storage = storageOf(settings)
  const receiptSettings = { batchMs: 1_000, anchorMs: undefined, waitMs: 10_000, zerog: settings }
  rig = await startPayoutRig({ dataDir, receipts: receiptSettings })
  receipts = receiptsOn(rig)
})
afterAll(async () => {
  zerog?.stop()
  await Promise.all([rig?.stop(), anvil?.stop()])
  rmSync(dataDir, { recursive: true, force: true })
})
beforeEach(async () => {
  await rig.empty()
  await zerog.setPrice(PRICE)
  // The wallet was used in the test before: it is known before anything waits for it.
  await payoutRound(rig.service.ctx, lane())
})

const lane = () => storageLane(storage, signerOf(anvil.accounts[1]))
const db = () => rig.service.ctx.db
const batches = () => db().selectFrom("receipt_batches").selectAll().orderBy("n").execute()
const calls = (): Promise<Row<"payouts">[]> =>
  db().selectFrom("payouts").selectAll().where("kind", "=", "store").orderBy("created_at").orderBy("id").execute()

/** One file of one receipt, in our own store. */
async function batched(): Promise<void> {
  await rig.paid(await rig.sell(), 1_000_000n)
  await receipts.round()
}

/** A round of the storage, though the last one was a moment ago. */
async function round(): Promise<void> {
  const { ctx } = rig.service
  await sql`update receipt_rounds set run_at = ${ctx.now()}`.execute(ctx.db)
  await storageRound(ctx, storage, lane().signer.address)
}

/** Carries out the calls that wait, and makes their blocks final. */
async function carryOut(): Promise<void> {
  await payoutRound(rig.service.ctx, lane())
  await anvil.client.mine({ blocks: 5 })
  await payoutRound(rig.service.ctx, lane())
}

const submitted = async () => (await zerog.files()).map(({ root }) => root)

describe("a file of receipts", () => {
  it("is paid for once, exactly what it costs, and stored once its call is final", async () => {
    await batched()
    await batched()
    const before = await submitted()
    const roots = (await batches()).map(({ root }) => root)
    await round()
    await round()
    await carryOut()
    expect((await calls()).map(({ state, lane, value }) => ({ state, lane, value }))).toEqual(
      (await batches()).map(({ size }) => {
        const chunks = size / 256
        return { state: "final", lane: "storage", value: BigInt(chunks) * PRICE }
      }),
    )
    expect((await submitted()).slice(before.length)).toEqual(roots)
    await round()
    const files = await zerog.files()
    expect(
      (await batches()).map(({ root, storage_seq, uploaded_at }) => [root, storage_seq, uploaded_at !== null]),
    ).toEqual(roots.map(root => [root, BigInt(files.find(file => file.root === root)?.seq ?? -1), true]))
    await round()
    await carryOut()
    expect((await submitted()).length).toBe(before.length + 2)
  })

  it("is paid for by another call where the price rose before its own was signed", async () => {
    await batched()
    await round()
    await zerog.setPrice(2n * PRICE)
    await carryOut()
    await round()
    await carryOut()
    expect((await calls()).map(({ state }) => state)).toEqual(["cancelled", "final"])
    await round()
    expect(await batches()).toMatchObject([{ uploaded_at: expect.any(Date) }])
  })

  it("is submitted again by the same bytes where a reorg removes its block", async () => {
    await batched()
    await round()
    const before = await submitted()
    await payoutRound(rig.service.ctx, lane())
    const [mined] = await calls()
    expect(mined).toMatchObject({ state: "mined" })
    await anvil.client.reorg(1)
    expect(await submitted()).toEqual(before)
    await carryOut()
    await carryOut()
    expect(await calls()).toMatchObject([{ state: "final", tx_hash: mined?.tx_hash, nonce: mined?.nonce }])
    expect((await submitted()).length).toBe(before.length + 1)
  })

  it("is not signed for where it was altered", async () => {
    await batched()
    await round()
    const before = await submitted()
    const [{ root } = { root: "" }] = await batches()
    const path = join(dataDir, "receipts", root.slice(2, 4), root.slice(2))
    const bytes = readFileSync(path)
    writeFileSync(path, bytes.with(100, bytes[100] === 97 ? 98 : 97))
    await carryOut()
    expect(await calls()).toMatchObject([{ state: "held", held_detail: expect.stringMatching(/^was altered/) }])
    expect(await submitted()).toEqual(before)
  })

  it("waits, and changes no payment, while the wallet is empty", async () => {
    const { client, accounts } = anvil
    const address = accounts[1].address
    const balance = await client.getBalance({ address })
    await client.setBalance({ address, value: 1_000n })
    await batched()
    await round()
    await carryOut()
    expect(await calls()).toMatchObject([{ state: "held", held_reason: "low_gas" }])
    await client.setBalance({ address, value: balance })
    rig.service.advance(60_000)
    await carryOut()
    expect(await calls()).toMatchObject([{ state: "final" }])
  })
})

describe("checkout.session.completed", () => {
  const completed = async () => {
    await notifyDuePayments(rig.service.ctx as never)
    const events = db().selectFrom("events").select("body").where("type", "=", "checkout.session.completed")
    return (await events.execute()).map(({ body }) => JSON.parse(body).data.zeroG)
  }

  it("waits for the transaction that stores its receipt to be signed, and names it", async () => {
    await batched()
    expect(await completed()).toEqual([])
    await round()
    expect(await completed()).toEqual([])
    await payoutRound(rig.service.ctx, lane())
    const [call] = await calls()
    const [{ root, byte_offset, byte_length } = { root: "", byte_offset: 0, byte_length: 0 }] = await db()
      .selectFrom("receipts")
      .selectAll()
      .execute()
    expect(await completed()).toEqual([
      {
        storageUri: `0g://${root}?o=${byte_offset}&l=${byte_length}`,
        storageRoot: root,
        storageTxHash: call?.tx_hash,
        anchorTxHash: null,
      },
    ])
    expect(call?.tx_hash).toMatch(/^0x/)
  })

  it("goes without it after RECEIPT_WAIT", async () => {
    await batched()
    rig.service.advance(9_000)
    expect(await completed()).toEqual([])
    rig.service.advance(1_000)
    expect(await completed()).toEqual([undefined])
  })
})
