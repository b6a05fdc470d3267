// Files of receipts reach 0G by the payout engine's own lane: each is paid for once, uploaded, and proven to be there.
import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type StorageRig, startStorageRig } from "../../../../test/storage.ts"
import { PRICE } from "../../../../test/zerog.ts"
import { notifyDuePayments } from "../../settlement/notify-paid.ts"

let on: StorageRig
beforeAll(async () => {
  on = await startStorageRig()
})
afterAll(() => on?.stop())
beforeEach(() => on.empty())

const db = () => on.rig.service.ctx.db

describe("a file of receipts", () => {
  it("is paid for once, exactly what it costs, and stored once its call is final", async () => {
    await on.batched()
    await on.batched()
    const before = await on.submitted()
    const roots = (await on.batches()).map(({ root }) => root)
    await on.round()
    await on.round()
    await on.carryOut()
    expect((await on.calls()).map(({ state, lane, value }) => ({ state, lane, value }))).toEqual(
      (await on.batches()).map(({ size }) => {
        const chunks = size / 256
        return { state: "final", lane: "storage", value: BigInt(chunks) * PRICE }
      }),
    )
    expect((await on.submitted()).slice(before.length)).toEqual(roots)
    await on.round()
    const files = await on.zerog.files()
    expect(
      (await on.batches()).map(({ root, storage_seq, uploaded_at }) => [root, storage_seq, uploaded_at !== null]),
    ).toEqual(roots.map(root => [root, BigInt(files.find(file => file.root === root)?.seq ?? -1), true]))
    await on.round()
    await on.carryOut()
    expect((await on.submitted()).length).toBe(before.length + 2)
    expect(await on.receipts.ownCallsShown()).toEqual([])
  })

  it("is paid for by another call where the price rose before its own was signed", async () => {
    await on.batched()
    await on.round()
    await on.zerog.setPrice(2n * PRICE)
    await on.carryOut()
    on.rig.service.advance(60_000)
    await on.round()
    await on.carryOut()
    expect((await on.calls()).map(({ state }) => state)).toEqual(["cancelled", "final"])
    await on.round()
    expect(await on.batches()).toMatchObject([{ uploaded_at: expect.any(Date) }])
  })

  it("is paid for by another call where its own reverts, since the price rose after it was signed", async () => {
    const before = await on.submitted()
    await on.batched()
    await on.round()
    await on.revertCall()
    expect((await on.calls()).map(({ state }) => state)).toEqual(["reverted"])
    on.rig.service.advance(60_000)
    await on.round()
    await on.carryOut()
    await on.round()
    expect((await on.calls()).map(({ state }) => state)).toEqual(["reverted", "final"])
    expect((await on.submitted()).length).toBe(before.length + 1)
    expect(await on.batches()).toMatchObject([{ uploaded_at: expect.any(Date) }])
  })

  it("is paid for once, though processes write and sign calls at the same time while the price changes", async () => {
    const before = (await on.submitted()).length
    for (let i = 0; i < 4; i++) await on.batched()
    const { ctx } = on.rig.service
    /** As where another process holds no lease. */
    const pay = async () => {
      await sql`update wallets set claim_id = null, lease_until = null where lane = 'storage'`.execute(ctx.db)
      await on.pay()
    }
    for (let turn = 0; turn < 5; turn++) {
      if (turn === 2) await on.zerog.setPrice(3n * PRICE)
      await Promise.all([on.round(), pay(), on.round(), pay(), on.round()])
      await on.anvil.client.mine({ blocks: 5 })
      on.rig.service.advance(60_000)
    }
    await on.carryOut()
    await on.round()
    const roots = (await on.batches()).map(({ root }) => root)
    expect((await on.submitted()).slice(before).toSorted()).toEqual(roots.toSorted())
    expect((await on.batches()).every(({ uploaded_at }) => uploaded_at !== null)).toBe(true)
  })

  it("is submitted again by the same bytes where a reorg removes its block", async () => {
    await on.batched()
    await on.round()
    const before = await on.submitted()
    await on.pay()
    const [mined] = await on.calls()
    expect(mined).toMatchObject({ state: "mined" })
    await on.anvil.client.reorg(1)
    expect(await on.submitted()).toEqual(before)
    await on.carryOut()
    await on.carryOut()
    expect(await on.calls()).toMatchObject([{ state: "final", tx_hash: mined?.tx_hash, nonce: mined?.nonce }])
    expect((await on.submitted()).length).toBe(before.length + 1)
  })

  it("is not signed for where it was altered", async () => {
    await on.batched()
    await on.round()
    const before = await on.submitted()
    const [{ root } = { root: "" }] = await on.batches()
    const path = join(on.dataDir, "receipts", root.slice(2, 4), root.slice(2))
    const bytes = readFileSync(path)
    writeFileSync(path, bytes.with(100, bytes[100] === 97 ? 98 : 97))
    await on.carryOut()
    expect(await on.calls()).toMatchObject([{ state: "held", held_detail: expect.stringMatching(/^was altered/) }])
    expect(await on.submitted()).toEqual(before)
  })

  it("waits, and changes no payment, while the wallet is empty", async () => {
    const { client, accounts } = on.anvil
    const address = accounts[1].address
    const balance = await client.getBalance({ address })
    await client.setBalance({ address, value: 1_000n })
    await on.batched()
    await on.round()
    await on.carryOut()
    expect(await on.calls()).toMatchObject([{ state: "held", held_reason: "low_gas" }])
    await client.setBalance({ address, value: balance })
    on.rig.service.advance(60_000)
    await on.carryOut()
    expect(await on.calls()).toMatchObject([{ state: "final" }])
  })
})

describe("checkout.session.completed", () => {
  const completed = async () => {
    await notifyDuePayments(on.rig.service.ctx as never)
    const events = db().selectFrom("events").select("body").where("type", "=", "checkout.session.completed")
    return (await events.execute()).map(({ body }) => JSON.parse(body).data.zeroG)
  }

  it("waits for the transaction that stores its receipt to be signed, and names it", async () => {
    await on.batched()
    expect(await completed()).toEqual([])
    await on.round()
    expect(await completed()).toEqual([])
    await on.pay()
    const [call] = await on.calls()
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
    // An hour, of which a slow machine takes no part that matters.
    const { settings } = on.rig.service.ctx
    settings.receipts.waitMs = 3_600_000
    await on.batched()
    on.rig.service.advance(3_000_000)
    expect(await completed()).toEqual([])
    on.rig.service.advance(600_000)
    expect(await completed()).toEqual([undefined])
    settings.receipts.waitMs = 10_000
  })
})
