// Manual actions on payouts: which are held and why, retried, cancelled; halts; the record of it all; and invalid
// requests.
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { type Operator, openOperator } from "../../../test/operator.ts"
import { type PayoutRig, recipient, startPayoutRig } from "../../../test/payouts.ts"
import { PAYOUT_ADDRESS } from "../../../test/service.ts"
import { makePayouts, sweepDue } from "../../ledger/payouts/make-payouts.ts"
import { sharesSettled } from "../../ledger/payouts/queries.ts"
import { recheckBudgets } from "../../ledger/txmanager/check-gas-budget.ts"
import { alarmMessages } from "../../ledger/txmanager/report-alarms.ts"
import { testUsdcAbi } from "../../platform/chain/abi.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { waitingAlarms } from "../doctor/waiting-alarms.ts"

const DAY_MS = 86_400_000
let rig: PayoutRig
let operator: Operator
let dir: string
beforeAll(async () => {
  rig = await startPayoutRig()
  operator = openOperator(rig)
  dir = mkdtempSync(join(tmpdir(), "sluice-list-"))
})
afterAll(async () => {
  rmSync(dir, { recursive: true, force: true })
  await operator.stop()
  await rig.stop()
})
beforeEach(async () => {
  rig.service.ctx.settings.sanctionsFile = undefined
  await rig.anvil.client.setAutomine(true)
  await rig.anvil.client.mine({ blocks: 3 })
  await rig.empty()
})

const list = (...addresses: string[]) => {
  const path = join(dir, `sdn-${Math.random()}.txt`)
  writeFileSync(path, [`0x${"5".repeat(40)}`, ...addresses].join("\n"))
  rig.service.ctx.settings.sanctionsFile = path
}
const held = async () => (await operator.ask("/held")).body.data
const payoutTo = async (n: number) => (await rig.payouts()).find(row => row.recipient === recipient(n))
const refusal = async (asked: Promise<{ status: number; body: { message: string } }>) => {
  const { status, body } = await asked
  expect(status).toBe(409)
  return body.message
}

describe("a payout that is held for sanctions", () => {
  it("is shown with the evidence, and stays held when it is released while listed", async () => {
    const shop = await rig.sell([50, 50])
    const before = await rig.balanceOf(recipient(0))
    list(recipient(0))
    const paymentId = await rig.paid(shop, 1_000_000n)
    await rig.round()
    const [row, ...more] = await held()
    expect(more).toEqual([])
    expect(row).toMatchObject({
      network: "base-sepolia",
      kind: "share",
      payment: paymentId,
      amount: "0.50",
      reason: "sanctions",
      detail: "the recipient is on a sanctions list: file",
      checks: 1,
      screening: { source: "file", at: expect.stringMatching(/Z$/) },
    })
    const answer = await operator.ask("/retry", { payout: row.id })
    expect([answer.status, answer.body.said]).toEqual([200, expect.stringContaining("screened again")])
    await rig.round()
    expect((await held()).map((each: { checks: number }) => each.checks)).toEqual([1])
    expect((await rig.balanceOf(recipient(0))) - before).toBe(0n)
    expect((await operator.actions()).map(each => [each.action, each.payout_id])).toEqual([["retry", row.id]])

    list()
    await operator.ask("/retry", { payout: row.id, reason: "the list was wrong" })
    await rig.round()
    expect(await held()).toEqual([])
    expect((await rig.balanceOf(recipient(0))) - before).toBe(500_000n)
    expect(await refusal(operator.ask("/retry", { payout: row.id }))).toMatch(/is mined, with the nonce \d+: only/)
  })
})

describe("many held payouts", () => {
  it("are retried by one command, all or those of one reason, with one record", async () => {
    const { ctx } = rig.service
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    const [first, second] = await rig.payouts()
    const later = new Date(ctx.now().getTime() + 3_600_000)
    const hold = (id: string | undefined, reason: "gas_budget" | "simulation") =>
      ctx.db
        .updateTable("payouts")
        .set({ state: "held", held_reason: reason, run_at: later, checks: 5 })
        .where("id", "=", id ?? "")
        .execute()
    await hold(first?.id, "gas_budget")
    await hold(second?.id, "simulation")
    const due = async () => (await rig.payouts()).filter(row => row.run_at <= ctx.now()).map(row => row.held_reason)
    const one = await operator.ask("/retry-all", { held: "gas_budget" })
    expect([one.status, one.body.said]).toEqual([200, expect.stringContaining("1 held payout is")])
    expect(await due()).toEqual(["gas_budget"])
    expect((await operator.ask("/retry-all", {})).body.said).toContain("2 held payouts are")
    expect((await due()).length).toBe(2)
    expect((await operator.actions()).map(row => row.action)).toEqual(["retry", "retry"])
    const none = await operator.ask("/retry-all", { held: "sanctions" })
    expect([none.status, none.body.message]).toEqual([409, "No payout is held for sanctions."])
    // A start retries payouts that wait for a budget, which may have been raised.
    await hold(first?.id, "gas_budget")
    await recheckBudgets(ctx)
    expect(await due()).toContain("gas_budget")
  })
})

/** Has all queued payouts signed, and then fail in their block. */
async function failOnChain(): Promise<void> {
  const { client } = rig.anvil
  const args = [recipient(0)] as const
  const blacklist = { address: rig.token, abi: testUsdcAbi, functionName: "blacklist", args } as const
  await client.setAutomine(false)
  await rig.round()
  await client.writeContract({ ...blacklist, maxPriorityFeePerGas: 9_000_000_000n, maxFeePerGas: 20_000_000_000n })
  await client.mine({ blocks: 1 })
  await client.setAutomine(true)
  await client.writeContractSync({ ...blacklist, functionName: "unBlacklist" })
  await client.mine({ blocks: 3 })
  await rig.round()
}

describe("a share that failed on chain five times", () => {
  it("raises an alarm that says what to do, waits for a person, and is paid when it is released", async () => {
    const { ctx } = rig.service
    const before = await rig.balanceOf(recipient(0))
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    const alarmsNow = async () => (await ctx.db.selectFrom("wallets").select("alarms").executeTakeFirstOrThrow()).alarms
    for (let i = 0; i < 5; i++) {
      expect(await alarmsNow()).toEqual([])
      if (i > 0) await operator.ask("/retry-all", {})
      await failOnChain()
      expect((await rig.states()).filter(state => state === "reverted").length).toBe(i + 1)
    }
    expect(await alarmsNow()).toEqual(["given_up"])
    expect(await alarmMessages(ctx, waitingAlarms)).toContainEqual(
      expect.stringContaining("`sluice wallet retry` retries one"),
    )
    rig.service.advance(400 * DAY_MS)
    await rig.round()
    const [row, ...more] = await held()
    expect(more).toEqual([])
    expect(row).toMatchObject({ reason: "reverted", detail: expect.stringMatching(/5 times .* `sluice wallet retry`/) })
    const answer = await operator.ask("/retry", { payout: row.id, reason: "its recipient is well again" })
    expect([answer.status, answer.body.said]).toEqual([200, expect.stringContaining("is now being retried")])
    await rig.round()
    expect((await rig.balanceOf(recipient(0))) - before).toBe(500_000n)
    await rig.anvil.client.mine({ blocks: 3 })
    await rig.round()
    expect(await alarmsNow()).toEqual([])
  })
})

describe("a share that reverted, and was not created again", () => {
  it("is created again by a retry, once, and paid once", async () => {
    const { ctx } = rig.service
    const before = await rig.balanceOf(recipient(0))
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    const share = await payoutTo(0)
    const id = share?.id ?? ""
    const set = (fields: object) => ctx.db.updateTable("payouts").set(fields).where("id", "=", id).execute()
    // As after five failures on chain.
    await set({ state: "assigned", wallet: recipient(9), nonce: 5n })
    const at = { tx_hash: `0x${"5".repeat(64)}`, block_hash: `0x${"5".repeat(64)}`, block_number: 1n }
    await set({ state: "reverted", succeeded: false, ...at })
    await rig.round()
    expect((await rig.states()).sort()).toEqual(["mined", "reverted"])
    const answer = await operator.ask("/retry", { payout: id, reason: "its token is well again" })
    expect([answer.status, answer.body.said]).toEqual([200, expect.stringContaining("created again as")])
    expect(await refusal(operator.ask("/retry", { payout: id }))).toContain("no part of it is left")
    await rig.round()
    expect((await rig.balanceOf(recipient(0))) - before).toBe(500_000n)
    expect((await rig.payouts()).filter(row => row.replaces === id).length).toBe(1)
    expect((await operator.actions()).map(row => row.payout_id)).toEqual([id])
  })
})

describe("a cancelled payout", () => {
  it("is never created again, neither by another share's failure nor by a new grant; its money stays", async () => {
    const { ctx } = rig.service
    const shop = await rig.sell([60, 40])
    const before = await Promise.all([0, 1].map(n => rig.balanceOf(recipient(n))))
    const paymentId = await rig.paid(shop, 1_000_000n)
    const share = await payoutTo(1)
    const { body } = await operator.ask("/cancel", { payout: share?.id, reason: "asked by the merchant" })
    expect(body.said).toContain("stays in its deposit")
    await rig.round()
    await makePayouts(ctx, paymentId)
    await makePayouts(ctx, paymentId, { reason: "reverted" })
    rig.service.advance(DAY_MS)
    await rig.round()
    expect((await rig.states()).sort()).toEqual(["cancelled", "mined"])
    const gained = await Promise.all([0, 1].map(async n => (await rig.balanceOf(recipient(n))) - (before[n] ?? 0n)))
    expect(gained).toEqual([600_000n, 0n])
    expect(await rig.balanceOf(shop.deposit.address)).toBe(400_000n)
    expect(await sharesSettled(ctx, paymentId)).toBe(true)
    const path = `/api/console/payments/${paymentId}/shares`
    const shown = (await rig.service.call("GET", path, undefined, { as: "shop" })).body
    expect(shown.data.map((each: { state: string }) => each.state)).toEqual(["mined", "cancelled"])
    expect(await operator.actions()).toMatchObject([
      { action: "cancel", reason: "asked by the merchant", before: { state: "queued" }, after: { state: "cancelled" } },
    ])
    expect(await refusal(operator.ask("/cancel", { payout: share?.id, reason: "again" }))).toContain(
      "is cancelled: only",
    )
  })

  it("may be a sweep, which is not swept again automatically; what arrives later is", async () => {
    const { ctx } = rig.service
    const owner = PAYOUT_ADDRESS.toLowerCase() as Address
    const before = await rig.balanceOf(owner)
    const shop = await rig.sell()
    await rig.paid(shop, 12_000_000n)
    const [sweep] = await rig.payouts()
    await operator.ask("/cancel", { payout: sweep?.id, reason: "a look at this merchant" })
    await rig.paid(shop, 2_000_000n)
    rig.service.advance(2 * DAY_MS)
    await sweepDue(ctx, rig.network)
    await rig.round()
    expect((await rig.balanceOf(owner)) - before).toBe(2_000_000n)
    expect(await rig.balanceOf(shop.deposit.address)).toBe(12_000_000n)
  })

  it("was cancelled before it had a nonce, or was not cancelled: never both", async () => {
    const shop = await rig.sell([10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
    await rig.paid(shop, 1_000_000n)
    const ids = (await rig.payouts()).map(row => row.id)
    const cancelled: ReturnType<Operator["ask"]>[] = []
    const sign: typeof rig.signer.sign = (bytes, signal) => {
      // All rows of this round have their nonces.
      if (cancelled.length === 0)
        cancelled.push(...ids.map(payout => operator.ask("/cancel", { payout, reason: "a race" })))
      return rig.signer.sign(bytes, signal)
    }
    await rig.round({ ...rig.signer, sign })
    const statuses = (await Promise.all(cancelled)).map(each => each.status)
    expect(new Set(statuses)).toEqual(new Set([409]))
    expect((await rig.payouts()).every(row => row.nonce !== null && row.succeeded)).toBe(true)
    expect(await operator.actions()).toEqual([])
  })

  // Both run concurrently, in any order, which needs several connections.
  it.runIf(onPostgres)("wins or loses against the nonce in any order", async () => {
    const shop = await rig.sell([10, 10, 10, 10, 10, 10, 10, 10, 10, 10])
    for (let i = 0; i < 5; i++) {
      await rig.paid(shop, 1_000_000n)
      const waiting = (await rig.payouts()).filter(row => row.state === "queued").map(row => row.id)
      const [, ...answers] = await Promise.all([
        rig.round(),
        ...waiting.map(payout => operator.ask("/cancel", { payout, reason: "a race" })),
      ])
      await rig.round()
      const rows = await rig.payouts()
      for (const [n, id] of waiting.entries()) {
        const row = rows.find(each => each.id === id)
        expect([answers[n]?.status, row?.nonce === null, row?.state === "cancelled"]).toEqual(
          answers[n]?.status === 200 ? [200, true, true] : [409, false, false],
        )
      }
    }
    const { rows } = await sql<{ n: bigint }>`select count(*) as n from operator_actions`.execute(rig.service.ctx.db)
    expect(rows[0]?.n).toBe(BigInt((await rig.states()).filter(state => state === "cancelled").length))
  })
})

describe("a halt", () => {
  it("stops signing and sending at once, including what was signed; a second halt or resume says so", async () => {
    const later = await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await sql`update payouts set run_at = ${new Date(rig.service.ctx.now().getTime() + DAY_MS)}
      where payment_id = ${later}`.execute(rig.service.ctx.db)
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    await rig.anvil.client.setAutomine(false)
    await rig.round()
    const halted = await operator.ask("/halt", {
      wallet: rig.signer.address.toUpperCase().replace("0X", "0x"),
      reason: "a look",
    })
    expect([halted.status, halted.body.said]).toEqual([200, expect.stringContaining("is halted")])
    const sends = (await operator.attempts()).map(each => each.sends)
    rig.service.advance(DAY_MS)
    await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
    expect((await operator.attempts()).map(each => each.sends)).toEqual(sends)
    expect(await refusal(operator.ask("/halt", { wallet: "payout", reason: "again" }))).toBe(
      "The wallet is already halted: by ops: a look",
    )
    const { body } = await operator.ask("/wallets")
    expect(body.data).toMatchObject([
      {
        network: "base-sepolia",
        lane: "payout",
        address: checksummed(rig.signer.address),
        status: "halted",
        haltedReason: "by ops: a look",
        unexplained: [],
        waiting: { queued: 2 },
        inFlight: [
          { attempt: 0, state: "assigned", empty: false, lastResult: "sent", sends: 1 },
          { attempt: 0, state: "assigned" },
        ],
      },
    ])
    expect(body.data[0].chain.gas).toMatch(/^\d+\.\d+$/)
    expect((await operator.ask("/wallets?network=base")).body.data).toEqual([])
    expect((await operator.ask("/resume", { wallet: "payout", reason: "looked" })).status).toBe(200)
    expect(await refusal(operator.ask("/resume", { wallet: "payout", reason: "again" }))).toContain("is not halted")
    const log = (await operator.ask("/log")).body.data
    expect(
      log.map((each: { action: string; reason: string; by: string }) => [each.action, each.reason, each.by]),
    ).toEqual([
      ["resume", "looked", "ops"],
      ["halt", "a look", "ops"],
    ])
    expect(log[1]).toMatchObject({
      wallet: checksummed(rig.signer.address),
      before: { status: "active" },
      after: { status: "halted" },
    })
    await rig.anvil.client.setAutomine(true)
  })

  it("also stops a round that had begun", async () => {
    await rig.paid(await rig.sell([50, 50]), 1_000_000n)
    const sent: string[] = []
    rig.proxy.spoil = (method, params, result) => {
      if (method === "eth_sendRawTransaction") sent.push(String(params[0]))
      return result
    }
    let halting: ReturnType<Operator["ask"]> | undefined
    // Requested while the round signs, after the nonces were committed.
    const sign: typeof rig.signer.sign = async (bytes, signal) => {
      halting ??= operator.ask("/halt", { wallet: "payout", reason: "now" })
      return await rig.signer.sign(bytes, signal)
    }
    await rig.round({ ...rig.signer, sign })
    expect((await halting)?.status).toBe(200)
    const before = sent.length
    await rig.round(rig.signer, { resendMs: 0, replaceMs: 0 })
    expect(sent.length).toBe(before)
    rig.proxy.spoil = (_method, _params, result) => result
  })
})

describe("the record of manual actions", () => {
  it("is permanent: no statement changes or deletes it", async () => {
    await operator.ask("/halt", { wallet: "payout", reason: "a look" })
    const { db } = rig.service.ctx
    await expect(db.deleteFrom("operator_actions").execute()).rejects.toThrow("stays written")
    await expect(db.updateTable("operator_actions").set({ by_user: "x" }).execute()).rejects.toThrow("stays written")
  })
})

describe("an invalid request", () => {
  const id = "00000000-0000-4000-8000-000000000000"
  const hash = `0x${"5".repeat(64)}`
  const asked: [string, object, string[]][] = [
    ["/halt", { wallet: "payout" }, ["reason"]],
    ["/halt", { wallet: "payout", reason: "" }, ["reason"]],
    ["/halt", { wallet: "payout", reason: "x", by: "" }, ["by"]],
    ["/halt", { wallet: "payout", reason: "x", network: "mainnet" }, ["network"]],
    ["/halt", { wallet: "payout", reason: "x", why: "y" }, ["why"]],
    ["/resume", { wallet: "payout" }, ["reason"]],
    ["/resume", { wallet: "payout", reason: "x", booksCompared: "yes" }, ["booksCompared"]],
    ["/unstick", { wallet: "payout", reason: "x" }, ["nonce"]],
    ["/unstick", { wallet: "payout", reason: "x", nonce: 1 }, ["nonce"]],
    ["/unstick", { wallet: "payout", reason: "x", nonce: "-1" }, ["nonce"]],
    ["/unstick", { wallet: "payout", reason: "x", nonce: "1", maxFeeGwei: "1.5" }, ["maxFeeGwei"]],
    ["/adopt", { hash: "0x1" }, ["hash"]],
    ["/adopt", { hash, payout: "1" }, ["payout"]],
    ["/adopt", { hash, foreign: true }, ["reason"]],
    ["/adopt", { hash, foreign: true, reason: "x", payout: id }, ["payout"]],
    ["/retry", {}, ["payout"]],
    ["/cancel", { payout: id }, ["reason"]],
  ]
  it.each(asked)("%s %o is refused at %o", async (path, body, at) => {
    const answer = await operator.ask(path, body)
    expect([answer.status, answer.body.error]).toEqual([400, "VALIDATION_ERROR"])
    expect(answer.body.details.map((each: { path: string }) => each.path)).toEqual(at)
    expect([await operator.actions(), (await operator.wallet()).status]).toEqual([[], "active"])
  })

  it("is not found where it names something that does not exist", async () => {
    for (const [path, body] of [
      ["/halt", { wallet: "relay", reason: "x" }],
      ["/halt", { wallet: "payout", network: "base", reason: "x" }],
      ["/cancel", { payout: id, reason: "x" }],
      ["/retry", { payout: id }],
    ] as const) {
      const answer = await operator.ask(path, body)
      expect([answer.status, answer.body.error]).toEqual([404, "NOT_FOUND"])
    }
    expect((await operator.ask("/halt", { wallet: "relay", reason: "x" })).body.message).toContain(
      checksummed(rig.signer.address),
    )
    expect((await operator.ask("/nothing")).status).toBe(404)
    expect(await operator.actions()).toEqual([])
  })

  it("names the network where a wallet is on several", async () => {
    const { ctx } = rig.service
    const { id: _id, ...row } = await operator.wallet()
    await ctx.db
      .insertInto("wallets")
      .values({ ...row, chain_id: 8453 })
      .execute()
    const answer = await operator.ask("/halt", { wallet: "payout", reason: "x" })
    expect(answer.body).toMatchObject({ error: "VALIDATION_ERROR", details: [{ path: "network" }] })
    expect((await operator.ask("/halt", { wallet: "payout", network: "base-sepolia", reason: "x" })).status).toBe(200)
  })

  it("reports the network as the problem where no endpoint answers, and changes nothing", async () => {
    await operator.ask("/halt", { wallet: "payout", reason: "a look" })
    rig.proxy.broken = 503
    const answer = await operator.ask("/resume", { wallet: "payout", reason: "x" })
    expect([answer.status, answer.body.error]).toEqual([503, "CHAIN_UNAVAILABLE"])
    expect((await operator.ask("/wallets")).body.data).toMatchObject([{ status: "halted", chain: null }])
    rig.proxy.broken = undefined
    for (const endpoint of rig.network.endpoints) endpoint.silentUntil = 0
    expect((await operator.wallet()).status).toBe("halted")
  })
})
