// Receipts from the settlement to the file: written with it, signed in order, sealed, proven by the root and on the chain.
import { randomBytes } from "node:crypto"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { hashOfFact, open, readReceipt, readSigned } from "../../../../verify/src/format.ts"
import { rootOf, treeOf } from "../../../../verify/src/merkle.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { forgetLostSecrets } from "../../platform/db/forget-lost-secrets.ts"
import type { Row } from "../../platform/db/schema.ts"
import { unseal } from "../../platform/secrets.ts"
import { ownerOf, receiptRound } from "./make-batches.ts"
import { receiptLines } from "./read-receipts.ts"
import type { Kept } from "./receipt.ts"
import { readBatch } from "./store-batches.ts"

let rig: PayoutRig
const dataDir = mkdtempSync(join(tmpdir(), "receipts-"))
beforeAll(async () => {
  rig = await startPayoutRig({ dataDir, receipts: { batchMs: 1_000, anchorMs: undefined } })
})
afterAll(async () => {
  await rig?.stop()
  rmSync(dataDir, { recursive: true, force: true })
})
beforeEach(() => rig.empty())

/** One round, though the last one was a moment ago. */
async function round(): Promise<void> {
  const { ctx } = rig.service
  await ctx.db.updateTable("receipt_rounds").set({ run_at: ctx.now() }).execute()
  await receiptRound(ctx, rig.network)
}

const receipts = () => rig.service.ctx.db.selectFrom("receipts").selectAll().orderBy("n").execute()

/** What a holder reads. */
async function opened({ root, byte_offset, byte_length, sealed }: Row<"receipts">) {
  const { ctx } = rig.service
  if (!root || byte_offset === null || byte_length === null || !sealed) throw new Error("it waits")
  const { key, facts } = JSON.parse(
    unseal(ctx.settings.secretKeys, "receipt", ownerOf(root, byte_offset), sealed),
  ) as Kept
  const bytes = await readBatch(ctx, root, { offset: byte_offset, length: byte_length })
  const { body } = await readReceipt(await open(Buffer.from(bytes ?? []).toString(), key))
  return { body, facts }
}

describe("a payment's receipt", () => {
  it("is written with the payment, and says what was paid once it is in its batch", async () => {
    const shop = await rig.sell()
    const id = await rig.paid(shop, 5_000_000n)
    expect(await receipts()).toMatchObject([{ type: "payment", about: id, amount: 5_000_000n, root: null, seq: null }])
    await round()
    const [receipt] = await receipts()
    if (!receipt) throw new Error("no receipt")
    const { body, facts } = await opened(receipt)
    expect(body).toMatchObject({
      type: "payment",
      seq: 1,
      prev: null,
      resource: { type: "paywall", id: shop.id },
      about: id,
      chain: "eip155:84532",
      token: rig.token,
      decimals: 6,
      amount: "5000000",
      transfers: [{ to: shop.deposit.address, amount: "5000000", k: 0, factory: rig.network.depositFactory }],
    })
    expect(facts.map(({ name }) => name)).toEqual(["description", "merchant"])
    expect(body.facts).toEqual(await Promise.all(facts.map(hashOfFact)))
    const file = await readBatch(rig.service.ctx, receipt.root as never)
    expect(rootOf(treeOf(file ?? new Uint8Array()))).toBe(receipt.root)
    expect(receipt.body).toBe(null)
  })

  it("follows the merchant's receipt before it, without a gap, in whichever batch", async () => {
    const shop = await rig.sell()
    await rig.service.merchant("other")
    const other = await rig.sell(undefined, "other")
    for (let i = 0; i < 3; i++) await rig.paid(shop, 1_000_000n)
    await round()
    await rig.paid(other, 1_000_000n)
    await rig.paid(shop, 1_000_000n)
    await round()
    const rows = await receipts()
    const ofShop = rows.filter(({ merchant_id }) => merchant_id === rows[0]?.merchant_id)
    const bodies = await Promise.all(ofShop.map(async row => (await opened(row)).body))
    expect(bodies.map(({ seq }) => seq)).toEqual([1, 2, 3, 4])
    expect(bodies.map(({ prev }) => prev)).toEqual([null, ...ofShop.slice(0, 3).map(({ hash }) => hash)])
    expect(rows.filter(row => !ofShop.includes(row))).toMatchObject([{ seq: 1 }])
    const batches = await rig.service.ctx.db.selectFrom("receipt_batches").selectAll().orderBy("n").execute()
    expect(batches).toMatchObject([
      { receipts: 3, prev_root: null, bytes: null },
      { receipts: 2, prev_root: batches[0]?.root },
    ])
  })

  it("is reversed by another, which names it, when a reorg reverses the payment", async () => {
    const shop = await rig.sell()
    const id = await rig.paid(shop, 5_000_000n)
    const { db } = rig.service.ctx
    await sql`update payments set status = 'reversed' where id = ${id}`.execute(db)
    await sql`update payments set status = 'granted' where id = ${id}`.execute(db)
    await round()
    const rows = await receipts()
    expect(rows.map(({ type }) => type)).toEqual(["payment", "reversed", "payment"])
    const [, reversed] = await Promise.all(rows.map(opened))
    expect(reversed?.body.reverses).toBe(rows[0]?.hash)
  })

  it("that can't be made stops no other, and its reversal waits with it until it can", async () => {
    const shop = await rig.sell()
    const altered = await rig.sell()
    const bad = await rig.paid(altered, 1_000_000n)
    const good = await rig.paid(shop, 2_000_000n)
    const { db } = rig.service.ctx
    await sql`update payments set status = 'reversed' where id = ${bad}`.execute(db)
    const setSalt = (salt: string) =>
      sql`update deposits set salt = ${salt} where id = ${altered.deposit.id}`.execute(db)
    const made = async () => {
      await round()
      return (await receipts()).flatMap(({ root, type, seq }) => (root === null ? [] : { type, seq }))
    }
    await setSalt(`0x${"1".repeat(64)}`)
    expect(await made()).toEqual([{ type: "payment", seq: 1 }])
    expect((await receipts()).find(({ root }) => root !== null)?.about).toBe(good)
    await setSalt(altered.deposit.salt)
    expect(await made()).toEqual([
      { type: "payment", seq: 2 },
      { type: "payment", seq: 1 },
      { type: "reversed", seq: 3 },
    ])
  })

  it("is signed by a new key after SECRET_KEY was lost, which leaves those before it to their holders", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell()
    await rig.paid(shop, 1_000_000n)
    await round()
    const [before] = await receipts()
    const settings = { ...ctx.settings, secretKeys: [randomBytes(32)] }
    const after = { ...ctx, settings }
    expect(await forgetLostSecrets(ctx.db, settings.secretKeys)).toContainEqual({ table: "receipts", lost: 1 })
    await rig.paid(shop, 2_000_000n)
    await ctx.db.updateTable("receipt_rounds").set({ run_at: ctx.now() }).execute()
    await receiptRound(after, rig.network)
    const [erased, made] = await receipts()
    expect(erased).toEqual({ ...before, sealed: null })
    expect(made).toMatchObject({ seq: 2, sealed: expect.any(String) })
    const keys = await ctx.db.selectFrom("receipt_keys").selectAll().orderBy("created_at").execute()
    expect(keys.map(({ sealed }) => sealed === null)).toEqual([true, false])
    const file = (await Array.fromAsync(receiptLines(after, before?.merchant_id ?? "", {}))).join("")
    const lines = file
      .trim()
      .split("\n")
      .map(line => JSON.parse(line))
    expect(lines).toHaveLength(3)
    expect((await readSigned(lines[2].jws)).kid).toBe(keys[1]?.id)
  })

  it("is neither lost nor doubled when two processes make batches at once", async () => {
    const shop = await rig.sell()
    for (let i = 0; i < 4; i++) await rig.paid(shop, 1_000_000n)
    const { ctx } = rig.service
    await round()
    await sql`update receipts set seq = null, hash = null, root = null, byte_offset = null, byte_length = null, path = null,
      sealed = null, body = '{"payer":"0x00000000000000000000000000000000000000aa"}'`.execute(ctx.db)
    await sql`update receipt_rounds set claim_id = null, lease_until = null, run_at = ${ctx.now()}`.execute(ctx.db)
    await Promise.allSettled([receiptRound(ctx, rig.network), receiptRound(ctx, rig.network)])
    await round()
    expect((await receipts()).map(({ seq }) => seq)).toEqual([1, 2, 3, 4])
  })
})
