// Reserved payments on a real chain: authorized by the payer's signature, captured, voided, reclaimed, reorganized.
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sql } from "kysely"
import { type Hex, parseSignature, zeroHash } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { deployContractWallet } from "../../../test/anvil.ts"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { keepUp, relaysOn, type Signed } from "../../../test/relays.ts"
import { placeEscrow, reservesOn } from "../../../test/reserve.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { reconcileRound } from "../../ledger/reconciliation/reconcile.ts"
import { relayLane } from "../../ledger/relays/relay-lane.ts"
import { tendRelays } from "../../ledger/relays/try-relay.ts"
import { alarmMessages } from "../../ledger/txmanager/report-alarms.ts"
import { payoutRound } from "../../ledger/txmanager/run-round.ts"
import { waitingAlarms } from "../../operations/doctor/waiting-alarms.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import type { Authorization } from "../../platform/chain/authorizations.ts"
import type { EscrowDeployment } from "../../platform/chain/escrow-deployments.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import type { Db } from "../../platform/db/open.ts"
import { advanceEscrows } from "./advance-escrows.ts"
import { authorizeEscrow } from "./authorize-escrow.ts"

let rig: PayoutRig
let escrow: EscrowDeployment
let on: ReturnType<typeof reservesOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  escrow = await placeEscrow(rig)
  on = reservesOn(rig, escrow)
})
afterAll(() => rig.stop())
beforeEach(() => on.begin())

const MERCHANT = PAYOUT_ADDRESS.toLowerCase() as Address
/** A session whose payer has signed, with the payer. */
async function reserved(change: object = {}) {
  const id = await on.start(change)
  const buyer = await on.buyer()
  const { status, body } = await on.submit(id, await on.sign(buyer, id))
  expect({ status, body }).toMatchObject({ status: 200, body: { status: "verifying", txHash: null } })
  await on.work()
  return { id, buyer, payer: buyer.address.toLowerCase() as Address }
}

const ctx = () => rig.service.ctx
/** Has another relay wallet be the one that every escrow obeys. */
const operated = (operator: string) =>
  ctx()
    .db.updateTable("escrows")
    .set({ operator } as object)
    .execute()
const AUTHORIZED = ["checkout.authorized"]
const PAID = ["checkout.confirmed", "checkout.session.completed"]

/** A reorg removes the block of the last call, which is not mined again yet. */
async function takenBack(kind: "reserve" | "capture" | "void"): Promise<void> {
  await rig.anvil.client.setAutomine(false)
  await rig.anvil.client.reorg(1)
  await on.round()
  await on.relook()
  expect((await on.calls(kind)).map(({ state }) => state)).toEqual(["assigned"])
  await rig.anvil.client.setAutomine(true)
}

/** Makes queued calls succeed in their simulation and fail in their block, because the token refuses them. */
async function failOnChain(): Promise<void> {
  const { client } = rig.anvil
  const code = (await client.getCode({ address: rig.token })) ?? "0x"
  await client.setAutomine(false)
  await on.round()
  await client.setCode({ address: rig.token, bytecode: "0x60006000fd" })
  await client.mine({ blocks: 1 })
  await client.setCode({ address: rig.token, bytecode: code })
  await client.mine({ blocks: 4 })
  await client.setAutomine(true)
  await on.round()
}

/** Returns a database that runs `between` after its `nth` read of calls. */
function slowed(db: Db, nth: number, between: () => Promise<void>): Db {
  let left = nth
  const builder = <T extends object>(of: T): T =>
    new Proxy(of, {
      get: (target, name) => {
        const value = Reflect.get(target, name)
        if (typeof value !== "function") return value
        return (...args: unknown[]) => {
          const made = value.apply(target, args)
          if (name !== "execute") return builder(made)
          return made.then(async (rows: unknown) => {
            if (--left === 0) await between()
            return rows
          })
        }
      },
    })
  const selectFrom = (table: "payouts") => (table === "payouts" ? builder(db.selectFrom(table)) : db.selectFrom(table))
  return new Proxy(db, {
    get: (target, name) => {
      const value = name === "selectFrom" ? selectFrom : Reflect.get(target, name)
      return typeof value === "function" ? value.bind(target) : value
    },
  })
}

/** A signature as a contract takes it in three parts. */
const parts = (signature: Hex) => {
  const { v, r, s } = parseSignature(signature)
  return [Number(v), r, s] as const
}

describe("a reserved payment", () => {
  it("is captured as a whole, and its merchant is notified at each step once", async () => {
    const before = await rig.balanceOf(MERCHANT)
    const { id, payer } = await reserved()
    expect(await rig.balanceOf(payer)).toBe(0n)
    expect(await on.session(id)).toMatchObject({
      status: "authorized",
      amountReceived: "0.00",
      authId: (await on.rowOf(id)).auth_id,
      escrow: { authorized: "5.00", captured: "0.00", capturable: "5.00" },
    })
    expect(await on.onChain(id)).toMatchObject({ capturableAmount: 5_000_000n })
    const { status, body } = await on.capture(id)
    expect(status).toBe(200)
    expect(body).toEqual({
      captureId: expect.stringMatching(/^po_/),
      sessionId: id,
      amount: "5.00",
      status: "pending",
      txHash: null,
    })
    await on.work()
    expect(await rig.balanceOf(MERCHANT)).toBe(before + 5_000_000n)
    const session = await on.session(id)
    expect(session).toMatchObject({
      status: "confirmed",
      amountReceived: "5.00",
      txHash: (await on.calls("capture"))[0]?.tx_hash,
      escrow: { captured: "5.00", capturable: "0.00", refundable: "5.00", released: "0.00" },
    })
    expect(session.payer.toLowerCase()).toBe(payer)
    expect(await on.events()).toEqual([...AUTHORIZED, ...PAID])
    expect(await on.status(id)).toMatchObject({ status: "confirmed", captured: "5.00" })
    expect((await on.capture(id)).body.error).toBe("INVALID_OPERATION")
  })

  it("is captured in parts, and what is left goes back an hour before the payer could take it", async () => {
    const { id, payer } = await reserved()
    for (const amount of ["1.50", "0.50"]) expect((await on.capture(id, amount)).body.amount).toBe(amount)
    const { status, body } = await on.capture(id, "3.01")
    expect({ status, error: body.error }).toEqual({ status: 409, error: "INVALID_OPERATION" })
    expect((await on.void(id)).body.error).toBe("INVALID_OPERATION")
    await on.work()
    expect(await on.session(id)).toMatchObject({ status: "confirmed", amountReceived: "2.00" })
    const { void_at } = await on.rowOf(id)
    await on.pass(void_at.getTime() - ctx().now().getTime() - 60_000)
    await on.work()
    expect(await on.calls("void")).toEqual([])
    await on.pass(60_001)
    await on.work()
    expect(await on.session(id)).toMatchObject({
      status: "confirmed",
      amountReceived: "2.00",
      escrow: { captured: "2.00", released: "3.00", capturable: "0.00" },
    })
    expect(await rig.balanceOf(payer)).toBe(3_000_000n)
    expect(await on.onChain(id)).toEqual({
      hasCollectedPayment: true,
      capturableAmount: 0n,
      refundableAmount: 2_000_000n,
    })
    // The first capture confirms the session; later ones only change the amount.
    expect(await on.events()).toEqual([...AUTHORIZED, ...PAID])
  })

  it("is voided by its merchant once, and nothing was paid", async () => {
    const { id, payer } = await reserved()
    const answers = await Promise.all([on.void(id), on.void(id)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    expect((await on.capture(id)).status).toBe(409)
    await on.work()
    expect(await on.session(id)).toMatchObject({
      status: "voided",
      amountReceived: "0.00",
      escrow: { released: "5.00" },
    })
    expect(await rig.balanceOf(payer)).toBe(5_000_000n)
    expect(await on.events()).toEqual([...AUTHORIZED, "checkout.voided"])
    expect((await on.submit(id, await on.sign(await on.buyer(), id))).body.error).toBe("SESSION_ALREADY_CONFIRMED")
  })

  it("is captured by itself, once, though two processes advance it", async () => {
    const before = await rig.balanceOf(MERCHANT)
    const id = await on.start({ capture: "automatic" })
    await on.submit(id, await on.sign(await on.buyer(), id))
    for (let i = 0; i < 3; i++) {
      await on.round()
      await on.relook()
      await Promise.all([advanceEscrows(ctx()), advanceEscrows(ctx())])
    }
    await on.work()
    expect(await on.session(id)).toMatchObject({ status: "confirmed", amountReceived: "5.00" })
    expect(await on.calls("capture")).toHaveLength(1)
    expect(await rig.balanceOf(MERCHANT)).toBe(before + 5_000_000n)
    expect(await on.events()).toEqual([...AUTHORIZED, ...PAID])
  })

  it("never moves more than was reserved when twenty captures and voids are asked for at once", async () => {
    const { id, payer } = await reserved()
    const before = await rig.balanceOf(MERCHANT)
    const asked = Array.from({ length: 20 }, (_, i) => (i % 4 === 3 ? on.void(id) : on.capture(id, "1.00")))
    const answers = await Promise.all(asked)
    expect(answers.every(({ status }) => status === 200 || status === 409)).toBe(true)
    await on.work()
    await on.work()
    const captured = (await rig.balanceOf(MERCHANT)) - before
    const back = await rig.balanceOf(payer)
    const { capturableAmount } = await on.onChain(id)
    expect(captured + back + capturableAmount).toBe(5_000_000n)
    const taken = answers.filter(({ status, body }) => status === 200 && body.captureId).length
    expect(captured).toBe(BigInt(taken) * 1_000_000n)
    expect(taken <= 5 && taken + answers.filter(({ body }) => body.voidId).length >= 1).toBe(true)
    const { authorized, captured: known, voided } = await on.rowOf(id)
    expect({ authorized, known, voided }).toEqual({ authorized: 5_000_000n, known: captured, voided: back })
  })

  it("that its payer took back with what the status gives it is voided, and the service's own void ends", async () => {
    const { id, buyer, payer } = await reserved()
    const { authorization_expiry: expiry, void_at: voidAt } = await on.rowOf(id)
    const message = async () => (await on.status(id)).message
    expect(await message()).toContain(`until ${voidAt.toISOString()}`)
    await on.pass(voidAt.getTime() - ctx().now().getTime() + 1_000)
    await on.look()
    expect(await message()).toMatch(
      `being released to the payer. Any amount not returned by ${expiry.toISOString()} can be withdrawn by the payer`,
    )
    await on.pass(expiry.getTime() - ctx().now().getTime() + 1_000)
    await on.look()
    expect(await message()).toContain("The payer can withdraw them directly now")
    expect((await on.calls("void")).map(({ state }) => state)).toEqual(["queued"])
    await rig.anvil.client.setBalance({ address: buyer.address, value: 10n ** 18n })
    const { reclaim } = await on.status(id)
    expect(reclaim).toMatchObject({ from: buyer.address, after: expiry.toISOString() })
    await rig.anvil.client.sendTransactionSync({ account: buyer, to: reclaim.to, data: reclaim.data } as never)
    expect(await rig.balanceOf(payer)).toBe(5_000_000n)
    await on.round()
    // It counts only once it is final: until then a reorg may remove it. No call changes, so time alone makes the
    // escrow due.
    rig.service.advance(61_000)
    await advanceEscrows(ctx())
    expect((await on.session(id)).status).toBe("authorized")
    await rig.anvil.client.mine({ blocks: 4 })
    await on.look()
    rig.service.advance(61_000)
    await advanceEscrows(ctx())
    expect(await on.session(id)).toMatchObject({ status: "voided", escrow: { released: "5.00", capturable: "0.00" } })
    await ctx()
      .db.updateTable("payouts")
      .set({ run_at: new Date(0) })
      .where("state", "=", "held")
      .execute()
    await on.round()
    expect((await on.calls("void")).map(({ state }) => state)).toEqual(["cancelled"])
    expect(await on.events()).toEqual([...AUTHORIZED, "checkout.voided"])
  })

  it("whose release failed on chain three times raises an alarm, and is released an hour later", async () => {
    const { id, payer } = await reserved()
    const { void_at: voidAt } = await on.rowOf(id)
    await on.pass(voidAt.getTime() - ctx().now().getTime() + 1_000)
    const fail = async () => {
      await on.relook()
      await failOnChain()
    }
    const alarm = expect.arrayContaining([expect.stringContaining("escrow_failed")])
    for (let i = 0; i < 2; i++) await fail()
    expect(await alarmMessages(ctx(), waitingAlarms)).not.toEqual(alarm)
    await fail()
    await on.relook()
    expect((await on.calls("void")).map(({ state }) => state)).toEqual(["reverted", "reverted", "reverted"])
    expect(await alarmMessages(ctx(), waitingAlarms)).toEqual(alarm)
    const { run_at: due } = await on.rowOf(id)
    expect(due?.getTime()).toBeLessThanOrEqual(ctx().now().getTime() + 3_600_000)
    await on.pass(3_600_000)
    await on.work()
    expect((await on.session(id)).status).toBe("voided")
    expect(await rig.balanceOf(payer)).toBe(5_000_000n)
    expect(await alarmMessages(ctx(), waitingAlarms)).not.toEqual(alarm)
  })

  it("whose merchant can't be notified raises an alarm, and still goes back to its payer in time", async () => {
    const { db } = ctx()
    const id = await on.start()
    const callback = (url: string | null) =>
      db.updateTable("checkout_sessions").set({ callback_url: url }).where("id", "=", id).execute()
    await callback("no address")
    const buyer = await on.buyer()
    expect((await on.submit(id, await on.sign(buyer, id))).status).toBe(200)
    const alarm = expect.arrayContaining([expect.stringContaining("escrow_failed")])
    await on.round()
    for (let i = 0; i < 2; i++) await on.look()
    expect(await alarmMessages(ctx(), waitingAlarms)).not.toEqual(alarm)
    for (let i = 0; i < 2; i++) await on.look()
    expect(await alarmMessages(ctx(), waitingAlarms)).toEqual(alarm)
    const { void_at: voidAt } = await on.rowOf(id)
    await on.pass(voidAt.getTime() - ctx().now().getTime() + 1_000)
    await on.work()
    expect(await rig.balanceOf(buyer.address.toLowerCase() as Address)).toBe(5_000_000n)
    expect((await on.calls("void")).length).toBe(1)
    await callback(null)
    await on.look()
    expect((await on.session(id)).status).toBe("voided")
    expect(await alarmMessages(ctx(), waitingAlarms)).not.toEqual(alarm)
  })

  it("is captured or released though its link was limited after its checkout was made, and nobody signs beyond the limit", async () => {
    const call = (method: "POST" | "PUT", path: string, body: object) =>
      rig.service.call(method, `/api/console/${path}`, body, { as: "shop" })
    const link = (await call("POST", "payment-links", { slug: "limited", title: "A", amount: 5 })).body.id
    const ids: string[] = []
    for (let i = 0; i < 3; i++) ids.push(await on.start({ slug: "limited", amount: undefined }))
    const [one = "", two = "", three = ""] = ids
    for (const id of [one, two]) expect((await on.submit(id, await on.sign(await on.buyer(), id))).status).toBe(200)
    expect((await call("PUT", `payment-links/${link}`, { maxUses: 1 })).status).toBe(200)
    await on.work()
    for (const id of [one, two]) expect((await on.session(id)).status).toBe("authorized")
    const late = await on.submit(three, await on.sign(await on.buyer(), three))
    expect([late.status, late.body.error]).toEqual([expect.any(Number), "LINK_UNAVAILABLE"])
    const { uses } = await ctx().db.selectFrom("payment_links").select("uses").executeTakeFirstOrThrow()
    expect(uses).toBe(1)
  })

  it("says that a capture asked for in time is carried out, not that its money is released", async () => {
    const { id } = await reserved()
    const { void_at: voidAt } = await on.rowOf(id)
    await on.pass(voidAt.getTime() - ctx().now().getTime() - 60_000)
    expect((await on.capture(id, "3")).status).toBe(200)
    await on.pass(120_000)
    await on.relook()
    expect((await on.status(id)).message).toMatch(/requested in time is in progress/)
    await on.work()
    expect(await on.session(id)).toMatchObject({ escrow: { captured: "3.00", released: "2.00" } })
  })

  it("of an automatic checkout that its merchant voids is not captured when the void fails on chain", async () => {
    const { db } = ctx()
    const id = await on.start({ capture: "automatic" })
    expect((await on.submit(id, await on.sign(await on.buyer(), id))).status).toBe(200)
    await on.round()
    await on.look()
    const at = new Date(ctx().now().getTime() + 86_400_000)
    await db
      .updateTable("payouts")
      .set({ state: "held", held_reason: "simulation", run_at: at })
      .where("kind", "=", "capture")
      .execute()
    expect((await on.void(id)).status).toBe(200)
    await failOnChain()
    // A process whose clock is ahead had made a capture earlier, which failed too.
    await sql`insert into payouts select (jsonb_populate_record(i, jsonb_build_object('id', gen_random_uuid(), 'kind', 'capture',
        'source_key', 'ahead', 'nonce', -1, 'tx_hash', ${zeroHash}::text, 'created_at', i.created_at + interval '5 minutes'))).*
      from payouts i where i.kind = 'void'`.execute(db)
    await on.relook()
    await on.work()
    expect((await on.session(id)).status).toBe("voided")
    expect((await on.calls("capture")).map(({ state }) => state)).toEqual(["cancelled", "reverted"])
    expect((await on.calls("void")).map(({ state }) => state)).toEqual(["reverted", "final"])
  })

  it("that its payer took back ends the void that an earlier relay wallet did not sign", async () => {
    const { id, buyer } = await reserved()
    const { authorization_expiry: expiry } = await on.rowOf(id)
    expect((await on.void(id)).status).toBe(200)
    await operated(MERCHANT)
    await on.pass(expiry.getTime() - ctx().now().getTime() + 1_000)
    await operated(rig.relayer.address)
    const { reclaim } = await on.status(id)
    await operated(MERCHANT)
    await rig.anvil.client.setBalance({ address: buyer.address, value: 10n ** 18n })
    await rig.anvil.client.sendTransactionSync({ account: buyer, to: reclaim.to, data: reclaim.data } as never)
    await rig.anvil.client.mine({ blocks: 5 })
    await on.look()
    await on.round()
    expect((await on.calls("void")).map(({ state }) => state)).toEqual(["cancelled"])
    expect(await on.session(id)).toMatchObject({ status: "voided", openCalls: [] })
  })

  it("that one wrong answer calls taken back is released when the comparison finds the chain still holds it", async () => {
    const { id, payer } = await reserved()
    const { operator, authorization_expiry: expiry, auth_id: authId } = await on.rowOf(id)
    await operated(MERCHANT)
    await on.pass(expiry.getTime() - ctx().now().getTime() + 1_000)
    await rig.anvil.client.mine({ blocks: 5 })
    const nothing = `0x${"1".padStart(64, "0")}${"0".repeat(128)}`
    rig.proxy.spoil = (method, params, result) =>
      method === "eth_call" && JSON.stringify(params).includes(`${authId}`.slice(2)) ? nothing : result
    await on.look()
    rig.proxy.spoil = (_method, _params, result) => result
    expect((await on.session(id)).status).toBe("voided")
    await operated(operator)
    // A node that lags behind the final block of that answer is no evidence against it.
    const { finalized_number: final } = await ctx().db.selectFrom("cursors").selectAll().executeTakeFirstOrThrow()
    const finalAt = (height: bigint) => ctx().db.updateTable("cursors").set({ finalized_number: height }).execute()
    await finalAt(final + 1_000n)
    await reconcileRound(ctx(), rig.network, rig.signer.address)
    expect((await on.rowOf(id)).reclaimed).toBe(5_000_000n)
    await finalAt(final)
    rig.service.advance(3_700_000)
    await reconcileRound(ctx(), rig.network, rig.signer.address)
    expect((await on.rowOf(id)).reclaimed).toBe(0n)
    await on.work()
    expect((await on.calls("void")).map(({ state }) => state)).toEqual(["mined"])
    expect([(await on.onChain(id)).capturableAmount, await rig.balanceOf(payer)]).toEqual([0n, 5_000_000n])
  })

  it("that its payer does not take back is checked less and less often, and all of a network together", async () => {
    const one = await reserved()
    const two = await reserved()
    const { operator, authorization_expiry: expiry } = await on.rowOf(two.id)
    const operated = (by: object) => ctx().db.updateTable("escrows").set(by).execute()
    await operated({ operator: MERCHANT })
    await on.pass(expiry.getTime() - ctx().now().getTime() + 86_400_000)
    await operated({ operator })
    const { client } = rig.anvil
    const { reclaim } = await on.status(one.id)
    await client.setBalance({ address: one.buyer.address, value: 10n ** 18n })
    await client.sendTransactionSync({ account: one.buyer, to: reclaim.to, data: reclaim.data } as never)
    await operated({ operator: MERCHANT })
    await client.mine({ blocks: 5 })
    await on.look()
    expect([(await on.session(one.id)).status, (await on.session(two.id)).status]).toEqual(["voided", "authorized"])
    const { run_at: due } = await on.rowOf(two.id)
    expect(due?.getTime()).toBeGreaterThan(ctx().now().getTime() + 1_800_000)
  })

  it("is paid by a contract wallet's own word (ERC-1271)", async () => {
    const id = await on.start()
    const key = await on.buyer(0n)
    const wallet = await deployContractWallet(rig.anvil.client, key.address)
    await rig.mint(wallet, 5_000_000n)
    const stranger = await on.sign(await on.buyer(), id, { from: wallet })
    expect((await on.submit(id, stranger)).body.error).toBe("AUTHORIZATION_REFUSED")
    expect((await on.submit(id, await on.sign(key, id, { from: wallet }))).status).toBe(200)
    await on.work()
    expect(await on.session(id)).toMatchObject({ status: "authorized", payer: checksummed(wallet) })
    await on.capture(id, "2")
    await on.work()
    await on.void(id)
    await on.work()
    expect(await on.session(id)).toMatchObject({ escrow: { captured: "2.00", released: "3.00" } })
    expect(await rig.balanceOf(wallet)).toBe(3_000_000n)
  })

  it("is reserved, captured and released through the escrow of version 1.0, too", async () => {
    const older = reservesOn(rig, await placeEscrow(rig, "v1.0"))
    try {
      const id = await older.start()
      const buyer = await older.buyer()
      expect((await older.submit(id, await older.sign(buyer, id))).status).toBe(200)
      await older.work()
      await older.capture(id, "2")
      await older.work()
      await older.void(id)
      await older.work()
      expect(await older.session(id)).toMatchObject({
        status: "confirmed",
        escrow: { captured: "2.00", released: "3.00" },
      })
      expect(await older.onChain(id)).toMatchObject({ capturableAmount: 0n, refundableAmount: 2_000_000n })
      expect(await rig.balanceOf(buyer.address.toLowerCase() as Address)).toBe(3_000_000n)
    } finally {
      rig.network.escrow = escrow
    }
  })

  it("is captured to its last unit, also where that is less than a capture may be", async () => {
    const { id } = await reserved()
    const refused = await on.capture(id, "0.005")
    expect([refused.status, refused.body.details[0].path]).toEqual([400, "amount"])
    expect((await on.capture(id, "4.995")).status).toBe(200)
    expect((await on.capture(id, "0.005")).body.amount).toBe("0.005")
    await on.work()
    expect(await on.session(id)).toMatchObject({
      status: "confirmed",
      escrow: { captured: "5.00", capturable: "0.00" },
    })
  })

  it("notifies its checkout's own address of what was reserved and released", async () => {
    const { id } = await reserved({ callbackUrl: "https://shop.example/hook" })
    await on.void(id)
    await on.work()
    const sent = ctx().db.selectFrom("deliveries").innerJoin("events", "events.id", "deliveries.event_id")
    const rows = await sent.select(["events.type", "deliveries.url"]).orderBy("events.type").execute()
    const url = "https://shop.example/hook"
    expect(rows).toEqual([
      { type: "checkout.authorized", url },
      { type: "checkout.voided", url },
    ])
  })
})

describe("the chain", () => {
  it("may revert a capture: the session stays as it was, and the money goes back", async () => {
    const { id, payer } = await reserved()
    await rig.anvil.client.setAutomine(false)
    await on.capture(id)
    await on.round()
    const { authorization_expiry: expiry } = await on.rowOf(id)
    await rig.anvil.client.setNextBlockTimestamp({ timestamp: BigInt(expiry.getTime() / 1_000) })
    await rig.anvil.client.mine({ blocks: 1 })
    await rig.anvil.client.setAutomine(true)
    await on.work()
    expect((await on.calls("capture")).map(({ state }) => state)).toEqual(["reverted"])
    expect(await on.session(id)).toMatchObject({
      status: "authorized",
      escrow: { capturable: "5.00", captured: "0.00" },
    })
    rig.service.advance(expiry.getTime() - ctx().now().getTime() + 1)
    await on.work()
    expect(await on.session(id)).toMatchObject({ status: "voided" })
    expect(await rig.balanceOf(payer)).toBe(5_000_000n)
    expect(await on.events()).toEqual([...AUTHORIZED, "checkout.voided"])
  })

  it("may take a capture back: its completion is reversed, and sent again when the same bytes are mined again", async () => {
    const { id } = await reserved()
    const before = await rig.balanceOf(MERCHANT)
    await on.capture(id)
    await on.round()
    await on.round()
    await on.look()
    expect((await on.session(id)).status).toBe("confirmed")
    await takenBack("capture")
    expect(await on.session(id)).toMatchObject({ status: "authorized", amountReceived: "0.00", confirmedAt: null })
    await on.work()
    expect(await on.session(id)).toMatchObject({ status: "confirmed", amountReceived: "5.00" })
    expect(await on.calls("capture")).toHaveLength(1)
    expect(await rig.balanceOf(MERCHANT)).toBe(before + 5_000_000n)
    expect(await on.events()).toEqual([...AUTHORIZED, ...PAID, "checkout.session.reversed", ...PAID])
  })

  it("may take a void back: it is reversed, and sent again when the same bytes are mined again", async () => {
    const { id } = await reserved()
    await on.void(id)
    await on.round()
    await on.round()
    await on.look()
    expect((await on.session(id)).status).toBe("voided")
    await takenBack("void")
    expect((await on.session(id)).status).toBe("authorized")
    await on.work()
    expect((await on.session(id)).status).toBe("voided")
    const voided = "checkout.voided"
    expect(await on.events()).toEqual([...AUTHORIZED, voided, "checkout.session.reversed", voided])
  })

  it("may have a capture fail when it is mined again: the void behind it gives back all, and the rows say so", async () => {
    const { client } = rig.anvil
    const { id, payer } = await reserved()
    await on.capture(id, "2")
    await on.round()
    await on.round()
    await on.look()
    await on.void(id)
    await on.round()
    await on.round()
    await on.look()
    expect(await on.session(id)).toMatchObject({ status: "confirmed", escrow: { captured: "2.00", released: "3.00" } })
    await client.setAutomine(false)
    await client.reorg(2)
    await on.round()
    const rows = await ctx().db.selectFrom("transaction_attempts").select("raw").orderBy("nonce").execute()
    const [capture, release] = rows.slice(-2)
    await client.dropAllTransactions()
    const code = (await client.getCode({ address: rig.token })) ?? "0x"
    await client.setCode({ address: rig.token, bytecode: "0x60006000fd" })
    await client.sendRawTransaction({ serializedTransaction: capture?.raw as Hex })
    await client.mine({ blocks: 1 })
    await client.setCode({ address: rig.token, bytecode: code })
    await client.sendRawTransaction({ serializedTransaction: release?.raw as Hex })
    await client.mine({ blocks: 1 })
    await client.setAutomine(true)
    await on.work()
    await client.mine({ blocks: 70 })
    await on.work()
    expect(await rig.balanceOf(payer)).toBe(5_000_000n)
    expect(await on.session(id)).toMatchObject({ status: "voided", escrow: { captured: "0.00", released: "5.00" } })
    expect((await on.calls("void")).map(({ state, amount }) => [state, amount])).toEqual([["final", 5_000_000n]])
  })

  it("may replace later blocks: what counted in a block that stays counts on", async () => {
    const { id } = await reserved()
    await on.capture(id, "2")
    await on.round()
    await on.round()
    await on.look()
    expect((await on.calls("capture")).map(({ state }) => state)).toEqual(["mined"])
    expect((await on.session(id)).status).toBe("confirmed")
    // The scan goes back to the final block.
    await ctx().db.updateTable("cursors").set({ block_number: 0n }).execute()
    await on.relook()
    expect(await on.session(id)).toMatchObject({ status: "confirmed", amountReceived: "2.00" })
    expect((await on.capture(id, "1")).status).toBe(200)
    expect(await on.events()).toEqual([...AUTHORIZED, ...PAID])
  })

  it("may take a reservation back for good: what was to be captured of it ends, and another payer can pay", async () => {
    const id = await on.start()
    await on.submit(id, await on.sign(await on.buyer(), id))
    await on.round()
    await on.round()
    await on.look()
    expect((await on.capture(id)).status).toBe(200)
    // As the engine writes it after the call was mined again and failed.
    const failed = { state: "reverted", succeeded: false } as const
    await ctx().db.updateTable("payouts").set(failed).where("kind", "=", "reserve").execute()
    await on.relook()
    expect(await on.session(id)).toMatchObject({ status: "pending", escrow: { authorized: "0.00" } })
    const other = await on.buyer()
    expect((await on.submit(id, await on.sign(other, id))).status).toBe(409)
    await on.round()
    expect((await on.calls("capture")).map(({ state }) => state)).toEqual(["cancelled"])
    await on.relook()
    expect((await on.submit(id, await on.sign(other, id))).status).toBe(200)
    expect(await on.rowOf(id)).toMatchObject({ payer: other.address.toLowerCase() })
  })

  it("may take a reservation back for good: a refund that waited for its merchant ends too", async () => {
    const id = await on.start()
    await on.submit(id, await on.sign(await on.buyer(), id))
    for (let i = 0; i < 2; i++) await on.round()
    await on.look()
    await on.capture(id)
    for (let i = 0; i < 2; i++) await on.round()
    await on.look()
    const asked = await rig.service.call("POST", "/api/console/payments/refund", { sessionId: id }, { as: "shop" })
    expect([asked.status, asked.body.status]).toEqual([201, "needs_approval"])
    const { db } = ctx()
    const failed = { state: "reverted", succeeded: false } as const
    await db.updateTable("payouts").set(failed).where("kind", "in", ["reserve", "capture"]).execute()
    await db
      .updateTable("payouts")
      .set({ run_at: new Date(0) })
      .where("kind", "=", "refund")
      .execute()
    await on.relook()
    await on.round()
    const { state } = await db
      .selectFrom("payouts")
      .select("state")
      .where("kind", "=", "refund")
      .executeTakeFirstOrThrow()
    expect(state).toBe("cancelled")
    await on.relook()
    expect((await on.submit(id, await on.sign(await on.buyer(), id))).status).toBe(200)
  })

  it("may take a reservation back: nothing is reserved until the same bytes are mined again", async () => {
    const id = await on.start()
    const buyer = await on.buyer()
    const signed = await on.sign(buyer, id)
    await on.submit(id, signed)
    await on.round()
    await on.round()
    await on.look()
    expect((await on.session(id)).status).toBe("authorized")
    await takenBack("reserve")
    expect(await on.session(id)).toMatchObject({ status: "verifying", escrow: { authorized: "0.00" } })
    expect((await on.capture(id)).status).toBe(409)
    expect((await on.submit(id, signed)).body).toEqual({ status: "verifying", sessionId: id, txHash: null })
    await on.work()
    expect((await on.session(id)).status).toBe("authorized")
    expect(await on.calls("reserve")).toHaveLength(1)
    expect(await on.events()).toEqual([...AUTHORIZED, "checkout.session.reversed", ...AUTHORIZED])
  })
})

describe("a reservation", () => {
  /** Submits, and expects a refusal that writes nothing. */
  async function expectRefused(id: string, signed: Signed, status: number, error: string, path?: string) {
    const rows = async () => [await on.rowOf(id), await on.session(id), await on.relays()]
    const before = await rows()
    const answer = await on.submit(id, signed)
    expect({ status: answer.status, error: answer.body.error }, JSON.stringify(answer.body)).toEqual({ status, error })
    if (path) expect(answer.body.details.map((each: { path: string }) => each.path)).toEqual([path])
    expect(await rows()).toEqual(before)
  }

  /** Copies the first call of a checkout until its `from` calls are `to`. */
  const copyCalls = (id: string, from: number, to: number) =>
    sql`insert into payouts select (jsonb_populate_record(i, jsonb_build_object('id', gen_random_uuid(), 'source_key', 'again:' || n,
        'nonce', case when i.nonce is not null then 1000 + n end))).*
      from payouts i, generate_series(${from}::int, ${to - 1}::int) n
      where i.id = (select id from payouts where escrow_id = ${id} order by created_at, id limit 1)`.execute(ctx().db)

  it.each<[keyof Authorization, Partial<Authorization>]>([
    ["to", { to: `0x${"11".repeat(20)}` as Address }],
    ["value", { value: 4_999_999n }],
    ["validAfter", { validAfter: 1n }],
    ["validBefore", { validBefore: 4_000_000_000n }],
    ["nonce", { nonce: `0x${"22".repeat(32)}` as Hash }],
  ])("with another %s than its checkout asks for is refused", async (name, given) => {
    const id = await on.start()
    await expectRefused(
      id,
      await on.sign(await on.buyer(), id, given),
      422,
      "AUTHORIZATION_REFUSED",
      `authorization.${name}`,
    )
  })

  it.each([1, 2])("that another request brings meanwhile gets the same answer (after read %i)", async nth => {
    const id = await on.start()
    const signed = await on.sign(await on.buyer(), id)
    const { ctx } = rig.service
    const session = await ctx.db.selectFrom("checkout_sessions").selectAll().where("id", "=", id).executeTakeFirst()
    const db = slowed(ctx.db, nth, async () => {
      expect((await on.submit(id, signed)).status).toBe(200)
      await on.work()
    })
    if (!session) throw new Error("no session")
    await authorizeEscrow({ ...ctx, db }, rig.network, session, signed)
    expect(await on.calls("reserve")).toHaveLength(1)
    expect((await on.session(id)).status).toBe("authorized")
  })

  it("is refused that another wallet signed, that its payer can't pay or has cancelled, or whose payer is sanctioned", async () => {
    const id = await on.start()
    const buyer = await on.buyer()
    const other = await on.buyer()
    const own = await on.sign(buyer, id)
    const theirs = { ...own, signature: (await on.sign(other, id)).signature }
    await expectRefused(id, theirs, 422, "AUTHORIZATION_REFUSED", "signature")
    const poor = await on.buyer(4_999_999n)
    await expectRefused(id, await on.sign(poor, id), 422, "AUTHORIZATION_REFUSED")
    const path = join(mkdtempSync(join(tmpdir(), "sluice-list-")), "sdn.txt")
    writeFileSync(path, buyer.address)
    ctx().settings.sanctionsFile = path
    try {
      await expectRefused(id, own, 403, "SANCTIONS_MATCH")
    } finally {
      ctx().settings.sanctionsFile = undefined
    }
    await rig.anvil.client.setBalance({ address: buyer.address, value: 10n ** 18n })
    const [v, r, s] = parts(await on.signCancel(buyer, own.authorization))
    const args = [buyer.address, own.authorization.nonce, v, r, s] as const
    const cancel = { address: rig.token, abi: testUsdcAbi, functionName: "cancelAuthorization", args }
    await rig.anvil.client.writeContractSync({ ...cancel, account: buyer } as never)
    await expectRefused(id, own, 409, "AUTHORIZATION_ALREADY_USED")
    // Whoever else pays signs the same terms.
    expect((await on.submit(id, await on.sign(other, id))).status).toBe(200)
    await expectRefused(id, await on.sign(await on.buyer(), id), 409, "INVALID_OPERATION")
  })

  it("is refused for a checkout that is over, and where the relay wallet is another than the one that was signed for", async () => {
    const id = await on.start({ expiresIn: 300 })
    const signed = await on.sign(await on.buyer(), id)
    const { settings } = ctx()
    const { relayWallet } = settings
    settings.relayWallet = rig.signer.address
    try {
      await expectRefused(id, signed, 503, "RELAY_UNAVAILABLE")
    } finally {
      settings.relayWallet = relayWallet
    }
    rig.service.advance(300_000)
    await expectRefused(id, signed, 410, "SESSION_EXPIRED")
    await on.relook()
    expect((await on.session(id)).status).toBe("expired")
    await expectRefused(id, signed, 410, "SESSION_EXPIRED")
  })

  it("that strangers have fail on chain three times leaves its checkout to its buyer; after twelve it ends, and asks nobody to sign", async () => {
    const id = await on.start()
    const ask = async () => await on.submit(id, await on.sign(await on.buyer(), id))
    for (let i = 0; i < 3; i++) {
      expect((await ask()).status).toBe(200)
      await failOnChain()
      await on.relook()
    }
    expect(await on.status(id)).toMatchObject({ status: "pending", authorization: expect.anything() })
    await copyCalls(id, 3, 11)
    expect((await ask()).status).toBe(200)
    await failOnChain()
    await on.relook()
    const status = await on.status(id)
    expect(status).toMatchObject({ status: "failed", message: expect.stringMatching(/Nothing was paid. Start a new/) })
    expect(status.authorization).toBeUndefined()
    const { status: code, body } = await ask()
    expect([code, body.message]).toEqual([409, expect.stringContaining("Too many authorizations of this checkout")])
    expect(await on.events()).toEqual(["checkout.failed"])
  })

  it("that ended twenty times keeps its own wallet out and no other; after five hundred the checkout ends", async () => {
    const id = await on.start()
    const buyer = await on.buyer()
    await on.submit(id, await on.sign(buyer, id))
    await ctx().db.updateTable("payouts").set({ state: "cancelled" }).execute()
    const { db } = ctx()
    await copyCalls(id, 1, 20)
    await on.relook()
    const own = await on.submit(id, await on.sign(buyer, id))
    expect([own.status, own.body.message]).toEqual([409, expect.stringContaining("by this wallet failed")])
    const other = await on.buyer()
    expect((await on.submit(id, await on.sign(other, id))).status).toBe(200)
    await db.updateTable("payouts").set({ state: "cancelled" }).where("state", "=", "queued").execute()
    await copyCalls(id, 20, 499)
    await on.relook()
    expect((await on.status(id)).status).toBe("failed")
    expect((await on.submit(id, await on.sign(other, id))).body.error).toBe("INVALID_OPERATION")
  })

  it("that was accepted and has no relay wallet any more ends with its time", async () => {
    const id = await on.start({ expiresIn: 300 })
    await on.submit(id, await on.sign(await on.buyer(), id))
    await tendRelays(ctx(), rig.network)
    await on.relook()
    expect((await on.session(id)).status).toBe("verifying")
    rig.service.advance(300_000)
    await tendRelays(ctx(), rig.network)
    await on.relook()
    expect((await on.session(id)).status).toBe("expired")
    expect((await on.calls("reserve")).map(({ state }) => state)).toEqual(["cancelled"])
  })

  it("that waits while the network is paused is cancelled, and its payer reads why", async () => {
    const id = await on.start()
    await on.submit(id, await on.sign(await on.buyer(), id))
    const payoutWallet = { chain_id: rig.network.chainId, lane: "payout", address: rig.signer.address.toLowerCase() }
    await ctx().db.deleteFrom("wallets").where("lane", "=", "payout").execute()
    await ctx()
      .db.insertInto("wallets")
      .values({
        ...payoutWallet,
        next_nonce: 0n,
        status: "halted",
        halted_reason: "by hand",
        run_at: ctx().now(),
      } as never)
      .execute()
    await on.round()
    await on.relook()
    expect((await on.calls("reserve")).map(({ state }) => state)).toEqual(["cancelled"])
    expect(await on.session(id)).toMatchObject({
      status: "pending",
      message: expect.stringContaining("Payments on this network are paused"),
    })
  })

  it("held for an earlier relay wallet is an alarm, until nothing is", async () => {
    const { id } = await reserved()
    const { operator } = await on.rowOf(id)
    const alarm = expect.arrayContaining([expect.stringContaining("an earlier relay wallet")])
    const makeIt = (change: object) => ctx().db.updateTable("escrows").set(change).execute()
    await makeIt({ operator: MERCHANT })
    expect(await alarmMessages(ctx(), waitingAlarms)).toEqual(alarm)
    expect((await on.void(id)).status).toBe(503)
    await makeIt({ operator })
    expect(await alarmMessages(ctx(), waitingAlarms)).not.toEqual(alarm)
    await makeIt({ operator: MERCHANT, voided: 5_000_000n })
    expect(await alarmMessages(ctx(), waitingAlarms)).not.toEqual(alarm)
  })

  it("is captured by the process that has its relay wallet's key, though the clock of another one is ahead", async () => {
    const aheadMs = 300
    const id = await on.start({ capture: "automatic" })
    expect((await on.submit(id, await on.sign(await on.buyer(), id))).status).toBe(200)
    await on.round()
    await relaysOn(rig).look()
    const now = () => new Date(ctx().now().getTime() + aheadMs)
    const other = { ...ctx(), now, settings: { ...ctx().settings, relayWallet: MERCHANT } }
    for (let i = 0; i < 5 && (await on.calls("capture")).length === 0; i++) {
      const { run_at: at } = await on.rowOf(id)
      rig.service.advance(Math.max(0, (at?.getTime() ?? 0) - aheadMs - ctx().now().getTime()))
      await keepUp(ctx())
      await advanceEscrows(other)
      rig.service.advance(aheadMs)
      await advanceEscrows(ctx())
    }
    expect(await on.calls("capture")).toHaveLength(1)
  })

  it("that is final counts while the scan stands still", async () => {
    const id = await on.start()
    expect((await on.submit(id, await on.sign(await on.buyer(), id))).status).toBe(200)
    const stopped = new Date(Math.min(Date.now(), ctx().now().getTime()) - 2 * 3_600_000)
    await on.round()
    await rig.anvil.client.mine({ blocks: 70 })
    await ctx().db.updateTable("cursors").set({ block_time: stopped }).execute()
    await payoutRound(ctx(), relayLane(rig.network, rig.relayer))
    expect((await on.calls("reserve")).map(({ state }) => state)).toEqual(["final"])
    await advanceEscrows(ctx())
    expect((await on.session(id)).status).toBe("authorized")
  })

  it("and a checkout, and what is asked of them, outlast a process whose clock is a week ahead", async () => {
    const { id } = await reserved()
    const pending = await on.start()
    await keepUp(ctx())
    const ahead = { ...ctx(), now: () => new Date(ctx().now().getTime() + 8 * 86_400_000) }
    await advanceEscrows(ahead)
    expect((await on.capture(id)).status).toBe(200)
    await tendRelays(ahead, rig.network)
    expect(await on.calls("void")).toEqual([])
    expect(await on.calls("capture")).toMatchObject([{ state: "queued" }])
    expect([(await on.session(id)).status, (await on.session(pending)).status]).toEqual(["authorized", "pending"])
  })

  /** Makes a reservation that was accepted 16 minutes ago, for a wallet that last worked then. */
  const longAccepted = async () => {
    const id = await on.start()
    expect((await on.submit(id, await on.sign(await on.buyer(), id))).status).toBe(200)
    const earlier = new Date(Date.now() - 16 * 60_000)
    await ctx().db.updateTable("payouts").set({ created_at: earlier }).execute()
    await ctx().db.updateTable("wallets").set({ run_at: earlier }).execute()
    return id
  }
  const states = async () => (await on.calls("reserve")).map(({ state }) => state)
  const ofOther = () => ({ ...ctx(), settings: { ...ctx().settings, relayWallet: MERCHANT } })

  it("of a relay wallet that another process works for is left to that process", async () => {
    await longAccepted()
    await ctx().db.updateTable("wallets").set({ run_at: ctx().now() }).execute()
    await tendRelays(ofOther(), rig.network)
    expect(await states()).toEqual(["queued"])
    const ahead = () => new Date(Date.now() + 8 * 86_400_000)
    await tendRelays({ ...ofOther(), now: ahead }, rig.network)
    expect(await states()).toEqual(["queued"])
  })

  it("that waits for an earlier relay wallet ends after a quarter of an hour", async () => {
    const id = await longAccepted()
    await ctx().db.updateTable("payouts").set({ created_at: ctx().now() }).execute()
    await tendRelays(ofOther(), rig.network)
    expect(await states()).toEqual(["queued"])
    await ctx()
      .db.updateTable("payouts")
      .set({ created_at: new Date(Date.now() - 16 * 60_000) })
      .execute()
    await tendRelays(ctx(), rig.network)
    expect(await states()).toEqual(["queued"])
    await tendRelays(ofOther(), rig.network)
    await on.relook()
    expect(await on.session(id)).toMatchObject({
      status: "pending",
      message: expect.stringMatching(/relay wallet changed. Nothing was paid: start a new checkout.$/),
    })
  })

  it("that ends without money leaves its checkout payable, by anybody, until it expires", async () => {
    const id = await on.start()
    const buyer = await on.buyer()
    await on.submit(id, await on.sign(buyer, id))
    const spend = { address: rig.token, abi: testUsdcAbi, functionName: "transfer", args: [MERCHANT, 1n] } as const
    await rig.anvil.client.setBalance({ address: buyer.address, value: 10n ** 18n })
    await rig.anvil.client.writeContractSync({ ...spend, account: buyer })
    await on.round()
    await on.relook()
    expect((await on.calls("reserve")).map(({ state }) => state)).toEqual(["cancelled"])
    const status = await on.status(id)
    expect(status).toMatchObject({ status: "pending", message: expect.stringContaining("The wallet holds 4.999999") })
    expect(await on.session(id)).toMatchObject({ authId: null, payer: null })
    await on.submit(id, await on.sign(await on.buyer(), id))
    await on.work()
    expect((await on.session(id)).status).toBe("authorized")
  })
})
