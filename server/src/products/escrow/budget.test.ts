// What stops the calls of an escrow: gas budgets, endpoints, and sanctions lists.
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from "vitest"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn } from "../../../test/relays.ts"
import { placeEscrow, reservesOn } from "../../../test/reserve.ts"
import { relayLane } from "../../ledger/relays/relay-lane.ts"
import { payoutRound } from "../../ledger/txmanager/run-round.ts"
import { advanceEscrows } from "./advance-escrows.ts"

const DAY_MS = 86_400_000

let rig: PayoutRig
let on: ReturnType<typeof reservesOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  on = reservesOn(rig, await placeEscrow(rig))
})
afterAll(() => rig.stop())
beforeEach(() => on.begin())
afterEach(() => {
  const { address: relayWallet } = rig.relayer
  Object.assign(rig.service.ctx.settings, { gasBudget: 0n, gasBudgetTotal: 0n, sanctionsFile: undefined, relayWallet })
})

/** A session whose payer's money is in the escrow. */
async function reserved(): Promise<{ id: string; payer: string }> {
  const id = await on.start()
  const buyer = await on.buyer()
  expect((await on.submit(id, await on.sign(buyer, id))).status).toBe(200)
  await on.work()
  return { id, payer: buyer.address.toLowerCase() }
}

it("Buyers who spend the relays' half of a budget stop reservations, which count twice, and no capture; nothing stops a void", async () => {
  const { db, settings } = rig.service.ctx
  const first = await reserved()
  const second = await reserved()
  const third = await reserved()
  await db
    .updateTable("payouts")
    .set({ gas_cost: 10n ** 16n })
    .where("kind", "=", "reserve")
    .execute()
  // The three reservations count as six of ten, more than half.
  settings.gasBudget = 10n ** 17n
  const other = await on.start()
  const refused = await on.submit(other, await on.sign(await on.buyer(), other))
  expect([refused.status, refused.body.error]).toEqual([503, "RELAY_UNAVAILABLE"])
  await on.capture(first.id)
  await on.work()
  expect((await on.session(first.id)).status).toBe("confirmed")
  Object.assign(settings, { gasBudget: 10n ** 16n, gasBudgetTotal: 10n ** 16n })
  await on.capture(second.id)
  await on.void(third.id)
  await on.work()
  const ends = (await on.calls("capture")).map(({ state, held_reason }) => [state, held_reason])
  expect(ends.slice(1)).toEqual([["held", "gas_budget"]])
  expect((await on.session(third.id)).status).toBe("voided")
})

it("Buyers get half of the budget of all merchants, which stops no payment's first capture, and the others only when merchants spent it", async () => {
  const { db, settings } = rig.service.ctx
  const one = await reserved()
  const two = await reserved()
  await db
    .updateTable("payouts")
    .set({ gas_cost: 10n ** 16n })
    .where("kind", "=", "reserve")
    .execute()
  // The two reservations count as four of six; relays get three.
  settings.gasBudgetTotal = 6n * 10n ** 16n
  const other = await on.start()
  const signed = await on.sign(await on.buyer(), other)
  const refused = await on.submit(other, signed)
  expect([refused.status, refused.body.error]).toEqual([503, "RELAY_UNAVAILABLE"])
  for (const amount of ["1", "2"]) await on.capture(one.id, amount)
  await on.work()
  expect(await on.session(one.id)).toMatchObject({ escrow: { captured: "3.00" } })
  settings.gasBudgetTotal = 10n ** 16n
  for (const amount of ["1", "2"]) await on.capture(two.id, amount)
  await on.work()
  expect(await on.session(two.id)).toMatchObject({ escrow: { captured: "1.00" } })
  expect((await on.calls("capture")).filter(({ state }) => state === "held")).toMatchObject([
    { amount: 2_000_000n, held_reason: "gas_budget" },
  ])
  settings.gasBudgetTotal = 9n * 10n ** 16n
  expect((await on.submit(other, signed)).status).toBe(200)
  await db
    .updateTable("payouts")
    .set({ run_at: new Date(0) })
    .where("state", "=", "held")
    .execute()
  await on.work()
  expect(await on.session(two.id)).toMatchObject({ escrow: { captured: "3.00" } })
  expect((await on.session(other)).status).toBe("authorized")
})

it("A capture that was withdrawn for a void, and asked for again, is still the payment's first: its reservation has paid for it", async () => {
  const { db, settings } = rig.service.ctx
  const { id } = await reserved()
  const now = new Date(0)
  const later = new Date(rig.service.ctx.now().getTime() + 86_400_000)
  const hold = (held_reason: "simulation" | null) =>
    db
      .updateTable("payouts")
      .set(held_reason ? { state: "held", held_reason, run_at: later } : { run_at: now })
      .where("state", "in", ["queued", "held"])
      .execute()
  expect((await on.capture(id)).status).toBe(200)
  await hold("simulation")
  expect((await on.void(id)).status).toBe(200)
  await hold("simulation")
  expect((await on.capture(id, "2")).status).toBe(200)
  expect((await on.capture(id, "1")).status).toBe(200)
  settings.gasBudgetTotal = 1n
  await on.work()
  expect(await on.session(id)).toMatchObject({ status: "confirmed", escrow: { captured: "2.00" } })
  expect((await on.calls("capture")).map(({ state, held_detail: detail }) => [state, detail])).toEqual([
    ["cancelled", expect.any(String)],
    ["final", null],
    ["held", expect.stringContaining("of all merchants")],
  ])
})

it("Captures of a merchant whose budget is spent are held together, before any is simulated, and in time before they end", async () => {
  const { db, settings } = rig.service.ctx
  const voided = await reserved()
  await on.void(voided.id)
  await on.work()
  const ids = [(await reserved()).id, (await reserved()).id]
  const [id = ""] = ids
  for (const id of ids) {
    for (let i = 0; i < 8; i++) expect((await on.capture(id, "0.10")).status).toBe(200)
    const more = await on.capture(id, "0.10")
    expect([more.status, more.body.message]).toEqual([
      409,
      expect.stringContaining("8 captures of this payment are in progress"),
    ])
  }
  await db
    .updateTable("payouts")
    .set({ gas_cost: 10n ** 16n })
    .where("kind", "=", "reserve")
    .execute()
  settings.gasBudget = 10n ** 16n
  const { escrow } = await on.rowOf(id)
  let simulated = 0
  rig.proxy.spoil = (method, [call], result) => {
    if (method === "eth_call" && (call as { to?: string }).to === escrow) simulated++
    return result
  }
  await on.round()
  const captures = await on.calls("capture")
  expect([simulated, captures.filter(({ held_reason: reason }) => reason === "gas_budget").length]).toEqual([0, 16])
  const waits = captures.map(({ run_at: at }) => at.getTime() - rig.service.ctx.now().getTime())
  expect(Math.max(...waits)).toBeLessThanOrEqual(300_000)
  settings.gasBudget = 10n ** 18n
  await db
    .updateTable("payouts")
    .set({ run_at: new Date(0) })
    .where("state", "=", "held")
    .execute()
  for (let i = 0; i < 2; i++) await on.work()
  for (const id of ids) expect(await on.session(id)).toMatchObject({ escrow: { captured: "0.80" } })
  await db
    .updateTable("payouts")
    .set({ gas_cost: 10n ** 16n })
    .where("kind", "in", ["capture", "void"])
    .execute()
  // Three reservations with the void and the two first captures are six; the fourteen others count once each.
  Object.assign(settings, { gasBudget: 0n, gasBudgetTotal: 21n * 10n ** 16n })
  expect((await on.capture(id, "1")).status).toBe(200)
  await on.work()
  expect(await on.session(id)).toMatchObject({ escrow: { captured: "1.80" } })
  settings.gasBudgetTotal = 20n * 10n ** 16n
  expect((await on.capture(id, "1")).status).toBe(200)
  await on.work()
  expect((await on.calls("capture")).at(-1)).toMatchObject({ state: "held", held_reason: "gas_budget" })
})

it("Eight captures that are held don't stop the capture of all that is left", async () => {
  const { db, settings } = rig.service.ctx
  const { id } = await reserved()
  for (let n = 0; n < 8; n++) expect((await on.capture(id, "0.10")).status).toBe(200)
  settings.gasBudget = 1n
  await on.round()
  expect((await on.calls("capture")).map(({ held_reason }) => held_reason)).toEqual(Array(8).fill("gas_budget"))
  expect((await on.capture(id, "0.10")).body.message).toMatch(/^8 captures of this payment are in progress/)
  expect((await on.capture(id)).body).toMatchObject({ amount: "4.20" })
  settings.gasBudget = 0n
  await db
    .updateTable("payouts")
    .set({ run_at: new Date(0) })
    .where("state", "=", "held")
    .execute()
  await on.work()
  expect(await on.session(id)).toMatchObject({ status: "confirmed", escrow: { captured: "5.00" } })
})

it("An endpoint that is asked what payers took back, once their time is over, delays nobody else's payment", async () => {
  const { ctx } = rig.service
  const { settings } = ctx
  const id = await on.start({ expiresIn: 600, captureWithin: 3_600 })
  const payer = await on.buyer()
  expect((await on.submit(id, await on.sign(payer, id))).status).toBe(200)
  await on.work()
  // The relay wallet has changed by then, so nobody releases the money.
  const { relayWallet } = settings
  settings.relayWallet = rig.signer.address
  await on.pass(3 * 3_600_000)
  await on.look()
  Object.assign(settings, { relayWallet })
  const other = await on.start()
  const buyer = await on.buyer()
  expect((await on.submit(other, await on.sign(buyer, other))).status).toBe(200)
  await on.round()
  await rig.anvil.client.mine({ blocks: 3 })
  await on.round()
  await relaysOn(rig).look()
  settings.relayWallet = rig.signer.address
  await ctx.db
    .updateTable("escrows")
    .set({ run_at: new Date(0) })
    .execute()
  const asked: string[] = []
  rig.proxy.spoil = (method, _params, result) => {
    asked.push(method)
    return result
  }
  await advanceEscrows(ctx, "others")
  expect([asked, (await on.session(other)).status]).toEqual([[], "authorized"])
  await advanceEscrows(ctx, "over")
  expect([asked.includes("eth_call"), (await on.session(id)).status]).toEqual([true, "authorized"])
})

it("A process whose clock is a day ahead, and that is gone, delays neither a reservation nor what follows it", async () => {
  const { ctx, advance } = rig.service
  const id = await on.start({ capture: "automatic", expiresIn: 30 * 86_400 })
  const buyer = await on.buyer()
  const signed = await on.sign(buyer, id)
  // The process with the fast clock accepts the signature, and confirms what the others sign.
  advance(DAY_MS)
  expect((await on.submit(id, signed)).status).toBe(200)
  advance(-DAY_MS)
  await on.round()
  expect((await on.calls("reserve")).map(({ nonce }) => nonce)).not.toEqual([null])
  await rig.anvil.client.mine({ blocks: 3 })
  const fast = { ...ctx, now: () => new Date(ctx.now().getTime() + DAY_MS) }
  await payoutRound(fast, relayLane(rig.network, rig.relayer))
  await relaysOn(rig).look()
  await advanceEscrows(ctx)
  expect((await on.session(id)).status).toBe("authorized")
  expect((await on.calls("capture")).map(({ state }) => state)).toEqual(["queued"])
})

it("A call that failed often is tried again within five minutes, and in time before it ends", async () => {
  const { client } = rig.anvil
  const { ctx } = rig.service
  const { id } = await reserved()
  const code = await client.getCode({ address: rig.token })
  await on.capture(id)
  const waitMs = async () => {
    await ctx.db.updateTable("payouts").set({ run_at: ctx.now(), checks: 12 }).where("kind", "=", "capture").execute()
    const from = ctx.now().getTime()
    await on.round()
    const [row] = await on.calls("capture")
    expect([row?.state, row?.held_reason]).toEqual(["held", "simulation"])
    return { from, ms: (row?.run_at.getTime() ?? 0) - from, ends: row?.relay_by?.getTime() ?? 0 }
  }
  await client.setCode({ address: rig.token, bytecode: "0x60006000fd" })
  const early = await waitMs()
  // The clock advances while it is simulated.
  expect(early.ms).toBeLessThan(400_000)
  rig.service.advance(early.ends - ctx.now().getTime() - 400_000)
  const late = await waitMs()
  expect(late.from + late.ms).toBeLessThan(late.ends - 200_000)
  await client.setCode({ address: rig.token, bytecode: code ?? "0x" })
  rig.service.advance(101_000)
  await on.work()
  expect((await on.session(id)).status).toBe("confirmed")
})

it("A capture of what a payer reserved who is on a list by now is held, and so is its release; each says why, and the other withdraws it", async () => {
  const { settings } = rig.service.ctx
  const { id, payer } = await reserved()
  const path = join(mkdtempSync(join(tmpdir(), "sluice-list-")), "sdn.txt")
  writeFileSync(path, payer)
  settings.sanctionsFile = path
  await on.capture(id)
  await on.work()
  const [row] = await on.calls("capture")
  expect([row?.state, row?.held_reason, row?.held_detail]).toEqual([
    "held",
    "sanctions",
    "the payer is on a sanctions list: file",
  ])
  expect((await on.onChain(id)).capturableAmount).toBe(5_000_000n)
  const other = await on.start()
  settings.sanctionsFile = undefined
  const buyer = await on.buyer()
  await on.submit(other, await on.sign(buyer, other))
  await on.work()
  settings.sanctionsFile = join(mkdtempSync(join(tmpdir(), "sluice-list-")), "sdn.txt")
  writeFileSync(settings.sanctionsFile, buyer.address)
  await on.void(other)
  await on.work()
  const held = "the recipient is on a sanctions list: file"
  const openCalls = async () => (await on.session(other)).openCalls
  expect(await openCalls()).toEqual([
    { id: expect.stringMatching(/^po_/), kind: "void", amount: "5.00", heldFor: held },
  ])
  const again = await on.void(other)
  expect([again.status, again.body.message]).toEqual([409, expect.stringContaining(`will be retried: ${held}`)])
  // A held call does not prevent the other decision.
  expect((await on.capture(other, "6")).status).toBe(409)
  expect((await openCalls())[0].kind).toBe("void")
  expect((await on.capture(other, "2")).status).toBe(200)
  await on.work()
  expect((await openCalls()).map(({ kind, heldFor }: Record<string, string>) => [kind, heldFor])).toEqual([
    ["capture", "the payer is on a sanctions list: file"],
  ])
  expect((await on.void(other)).status).toBe(200)
  settings.sanctionsFile = undefined
  await rig.service.ctx.db
    .updateTable("payouts")
    .set({ run_at: new Date(0) })
    .where("state", "=", "held")
    .execute()
  await on.work()
  expect(await on.session(other)).toMatchObject({ status: "voided", openCalls: [], escrow: { released: "5.00" } })
  const ended = (await on.calls("capture")).filter(({ escrow_id: of }) => of === other)
  expect(ended.map(({ state, held_detail }) => [state, held_detail])).toEqual([
    ["cancelled", "The merchant released it instead."],
  ])
})
