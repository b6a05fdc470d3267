// What a payment has beyond its signed return, or lacks of it: rows as reorgs leave them, without a chain.
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { returnNonce } from "../../platform/chain/release-call.ts"
import { inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { returnAgain } from "../payouts/make-returns.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { freshSubmission } from "../scanner/queries.ts"
import { followGivenBack } from "./end-given-back.ts"
import { settleDue } from "./settle.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(() => begin())

async function begin(): Promise<void> {
  await service.empty()
  await service.merchant("shop")
}

const { chainId, token } = paperNetwork
const payer = `0x${"b".repeat(40)}` as Address
const OTHER = `0x${"c".repeat(40)}` as Address
const BACK = `0x${"d2".repeat(20)}`
const hashOf = (n: number) => `0x${n.toString(16).padStart(64, "0")}` as Hash
const db = () => service.ctx.db
const as = { as: "shop" }
const post = (path: string, body: object) => service.call("POST", `/api/console/${path}`, body, as)

async function sell(what: "paywalls" | "checkouts" = "paywalls", more: object = {}) {
  const { body } = await post(what, { ...(what === "paywalls" ? { name: "Film", price: 5 } : { amount: 5 }), ...more })
  return await db().selectFrom("deposits").selectAll().where("resource_id", "=", body.id).executeTakeFirstOrThrow()
}
type Deposit = Awaited<ReturnType<typeof sell>>

/** A confirmed transfer that is old enough to count without a submission. */
async function arrive(deposit: Deposit, n: number, value: bigint, from = payer): Promise<void> {
  const now = service.ctx.now()
  await db()
    .insertInto("transfers")
    .values({
      chain_id: chainId,
      tx_hash: hashOf(n),
      token: token.address,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: from,
      value,
      block_number: BigInt(n),
      block_hash: hashOf(n),
      log_index: 0,
      block_time: new Date(now.getTime() - 900_000),
      state: "confirmed",
      run_at: now,
      created_at: now,
    })
    .execute()
}

const change = (n: number, to: { state?: "gone" | "confirmed"; value?: bigint }) =>
  db()
    .updateTable("transfers")
    .set({ ...to, reorged_at: service.ctx.now(), run_at: service.ctx.now() })
    .where("tx_hash", "=", hashOf(n))
    .execute()
const settle = () => settleDue(service.ctx, paperNetwork)
/** The next round of settling that is due in a minute. */
const later = async () => {
  service.advance(61_000)
  await settle()
}
const payments = () => db().selectFrom("payments").selectAll().orderBy("created_at").orderBy("id").execute()
const states = async () => (await payments()).map(row => [row.status, row.exception, row.amount])
const payouts = () => db().selectFrom("payouts").selectAll().orderBy("created_at").orderBy("id").execute()
const giveBack = async (id: string) => (await post(`payments/${id}/return`, { address: BACK })).status

let nonces = 0n
/** Gives a return its nonce, as the engine does. */
const sign = (id: string) =>
  db()
    .updateTable("payouts")
    .set({ state: "assigned", held_reason: null, wallet: payer, nonce: nonces++ })
    .where("id", "=", id)
    .execute()
/** Ends a return as `confirmPayouts` does. */
const end = async (id: string, succeeded: boolean) => {
  const mined = { succeeded, tx_hash: hashOf(99), block_hash: hashOf(99), block_number: 99n }
  await inTransaction(service.ctx, async ctx => {
    const { payment_id } = await ctx.db.selectFrom("payouts").selectAll().where("id", "=", id).executeTakeFirstOrThrow()
    await ctx.db.selectFrom("payments").select("id").where("id", "=", payment_id).forNoKeyUpdate().execute()
    const ended = { ...mined, state: succeeded ? ("final" as const) : ("reverted" as const) }
    await ctx.db.updateTable("payouts").set(ended).where("id", "=", id).execute()
    if (!succeeded) await returnAgain(ctx, { id, payment_id }, 5)
  })
}

/** An underpaid payment of 3 whose return is signed; returns the return's id. */
async function returned(deposit: Deposit, value = 3_000_000n): Promise<string> {
  await arrive(deposit, 1, value)
  await settle()
  const [payment] = await payments()
  expect(await giveBack(payment?.id ?? "")).toBe(200)
  const [payout] = await payouts()
  await sign(payout?.id ?? "")
  return payout?.id ?? ""
}

/** The rows that have to add up, but for what is signed here without a transaction. */
const findings = async () =>
  (await checkConsistency(service.ctx, chainId)).filter(({ words }) => !/signed/.test(words)).map(({ words }) => words)
const notices = async () => {
  const { rows } = await sql<{ data: { amount: string } }>`select body::json->'data' as data from events
    where type = 'payment.exception' order by created_at, id`.execute(db())
  return rows.map(({ data }) => data.amount)
}

describe.each(["paywalls", "checkouts"] as const)("of %s, a payment whose return is signed", what => {
  it("and that a reorg made larger waits for a decision about the rest, once the return is final", async () => {
    const deposit = await sell(what)
    const payout = await returned(deposit)
    await change(1, { value: 4_500_000n })
    await settle()
    expect(await states()).toEqual([["returned", "underpaid", 3_000_000n]])
    await later()
    await end(payout, true)
    await later()
    expect(await states()).toEqual([["open", "underpaid", 1_500_000n]])
    await settle()
    expect(await findings()).toEqual([])
    const [payment] = await payments()
    expect(await giveBack(payment?.id ?? "")).toBe(200)
    const second = (await payouts()).at(-1)
    expect([second?.amount, second?.state, (await states())[0]?.[0]]).toEqual([1_500_000n, "queued", "returned"])
    await sign(second?.id ?? "")
    await end(second?.id ?? "", true)
    await later()
    expect(await states()).toEqual([["returned", "underpaid", 1_500_000n]])
    expect(await findings()).toEqual([])
  })

  it("and that a reorg took frees the next payment when its own money is back", async () => {
    const deposit = await sell(what)
    const payout = await returned(deposit)
    await change(1, { state: "gone" })
    await settle()
    await arrive(deposit, 2, 5_000_000n)
    await settle()
    expect(await states()).toEqual([["returned", "underpaid", 3_000_000n]])
    await change(1, { state: "confirmed" })
    await settle()
    await end(payout, true)
    await later()
    expect(await states()).toEqual([
      ["returned", "underpaid", 3_000_000n],
      ["granted", null, 5_000_000n],
    ])
    expect(await findings()).toEqual([])
  })

  it("and that may be gone takes open money only when it is gone", async () => {
    const deposit = await sell(what)
    await returned(deposit)
    await arrive(deposit, 2, 1_000_000n)
    await settle()
    const before = await payments()
    await db()
      .updateTable("transfers")
      .set({ suspect_at: service.ctx.now(), run_at: service.ctx.now() })
      .where("tx_hash", "=", hashOf(1))
      .execute()
    await settle()
    await later()
    expect((await payments()).map(row => [row.id, row.status])).toEqual(before.map(row => [row.id, row.status]))
    await change(1, { state: "gone" })
    await settle()
    expect((await states()).map(([status]) => status)).toEqual(["returned"])
    expect(await findings()).toEqual([])
  })

  it("and that a reorg took frees the next payment when the return fails", async () => {
    const deposit = await sell(what)
    const payout = await returned(deposit)
    await change(1, { state: "gone" })
    await settle()
    await arrive(deposit, 2, 5_000_000n)
    await settle()
    await end(payout, false)
    await later()
    expect(await states()).toEqual([["granted", null, 5_000_000n]])
    expect(await findings()).toEqual([])
  })

  it("and fails is not made again with later money, though it is as much", async () => {
    const deposit = await sell(what)
    const payout = await returned(deposit)
    await change(1, { state: "gone" })
    await settle()
    service.advance(1_000)
    await arrive(deposit, 2, 3_000_000n)
    await settle()
    await end(payout, false)
    await later()
    expect(await states()).toEqual([["open", "underpaid", 3_000_000n]])
    expect((await payouts()).map(({ state }) => state)).toEqual(["reverted"])
    expect(await findings()).toEqual([])
  })
})

/** What the comparison writes when a merchant's own wallet gave a payment's money back, and what follows from it. */
async function gaveBack(payment: Row<"payments"> | undefined, amount: bigint): Promise<void> {
  if (!payment) throw new Error("no payment")
  const outflow = {
    chain_id: chainId,
    deposit_id: payment.deposit_id ?? 0n,
    merchant_id: payment.merchant_id,
    reason: "given_back" as const,
    tx_hash: hashOf(77),
    token: token.address,
    recipient: BACK as Address,
    amount,
    block_number: 20n,
    block_hash: hashOf(20),
    log_index: 0,
    block_time: service.ctx.now(),
    created_at: service.ctx.now(),
    nonce: returnNonce(payment.id, 0),
  }
  await db().insertInto("outflows").values(outflow).execute()
  await followGivenBack(service.ctx, paperNetwork)
}

it("what a merchant gave back by a nonce of any of an address's thousand payments ends no other one of that amount", async () => {
  const deposit = await sell()
  await arrive(deposit, 1, 3_000_000n)
  await settle()
  const [open] = await payments()
  // Paid in full long ago: the last of them in the order in which they are read.
  await sql`insert into payments (id, resource_id, merchant_id, chain_id, payer, token, amount, tx_hash, status, created_at, updated_at)
    select 'pay_' || lpad(n::text, 24, '0'), resource_id, merchant_id, chain_id, '0x' || lpad('f', 40, 'f'), token, 5000000, tx_hash, 'granted',
      created_at, updated_at from payments, generate_series(1, 1200) n`.execute(db())
  await gaveBack(open && { ...open, id: `pay_${"1200".padStart(24, "0")}` }, 3_000_000n)
  expect((await payments()).filter(({ status }) => status !== "granted")).toMatchObject([{ status: "open" }])
  // Nobody's nonce: the amount says which it was.
  await db().deleteFrom("outflows").execute()
  await gaveBack(open && { ...open, id: `pay_${"9".repeat(24)}` }, 3_000_000n)
  expect((await payments()).filter(({ status }) => status !== "granted")).toMatchObject([{ status: "returned" }])
})

describe.each([
  { gave: 8_000_000n, left: [["returned", "underpaid", 3_000_000n]] },
  { gave: 2_000_000n, left: [["open", "underpaid", 1_000_000n]] },
])("a payment of 3 of which its merchant gave back $gave by itself", ({ gave, left }) => {
  it("takes nothing of the payer's next payment", async () => {
    const deposit = await sell()
    await arrive(deposit, 1, 3_000_000n)
    await arrive(deposit, 9, 20_000_000n, OTHER)
    await settle()
    const payment = (await payments()).find(row => row.payer === payer)
    await gaveBack(payment, gave)
    await settle()
    const ofPayer = async () =>
      (await payments()).filter(row => row.payer === payer).map(row => [row.status, row.exception, row.amount])
    expect(await ofPayer()).toEqual(left)
    await arrive(deposit, 2, 5_000_000n)
    await settle()
    await later()
    expect(await ofPayer()).toEqual([...left, ["granted", null, 5_000_000n]])
    expect(await findings()).toEqual([])
  })
})

describe.each(["paywalls", "checkouts"] as const)(
  "among %s, a payment of 2 and 1 of which its merchant gave back 2 by itself",
  what => {
    it("is of 2, and the 1 waits for itself: the rows are what the comparison expects", async () => {
      const deposit = await sell(what)
      await arrive(deposit, 1, 2_000_000n)
      await arrive(deposit, 2, 1_000_000n)
      await settle()
      const [payment] = await payments()
      expect(await states()).toEqual([["open", "underpaid", 3_000_000n]])
      await gaveBack(payment, 2_000_000n)
      await settle()
      await later()
      expect(new Set(await states())).toEqual(
        new Set([
          ["returned", "underpaid", 2_000_000n],
          ["open", "underpaid", 1_000_000n],
        ]),
      )
      expect((await payments()).find(({ status }) => status === "returned")?.tx_hash).toBe(hashOf(1))
      expect(await findings()).toEqual([])
      // As an earlier version left it: it is corrected.
      await db()
        .updateTable("payments")
        .set({ amount: 3_000_000n, tx_hash: hashOf(2) })
        .where("status", "=", "returned")
        .execute()
      expect(await findings()).not.toEqual([])
      await db().updateTable("transfers").set({ run_at: service.ctx.now() }).execute()
      await settle()
      expect(await findings()).toEqual([])
    })
  },
)

describe.each(["paywalls", "checkouts"] as const)("among %s, an accepted payment that a reorg removed", what => {
  it("has all of its money when it comes back with more", async () => {
    const deposit = await sell(what)
    await arrive(deposit, 1, 3_000_000n)
    await settle()
    await post(`payments/${(await payments())[0]?.id}/accept`, {})
    expect(await states()).toEqual([["granted", "underpaid", 3_000_000n]])
    await change(1, { state: "gone" })
    await settle()
    expect(await states()).toEqual([["reversed", "underpaid", 3_000_000n]])
    await change(1, { value: 3_000_001n, state: "confirmed" })
    await settle()
    expect(await states()).toEqual([["granted", "underpaid", 3_000_001n]])
    expect(await findings()).toEqual([])
  })
})

describe("a surplus whose return is signed", () => {
  const overpaid = async () => {
    const deposit = await sell()
    const payout = await returned(deposit, 9_000_000n)
    expect(await states()).toEqual([["granted", "overpaid", 9_000_000n]])
    await change(1, { state: "gone" })
    await settle()
    return { deposit, payout }
  }

  it("is of what its payer sends next, where a reorg took the payment; the rest waits for the merchant", async () => {
    const { deposit, payout } = await overpaid()
    await arrive(deposit, 2, 5_000_000n)
    await settle()
    expect(await states()).toEqual([["returned", "overpaid", 4_000_000n]])
    await end(payout, true)
    await later()
    expect(await states()).toEqual([["open", "overpaid", 1_000_000n]])
    await settle()
    expect(await notices()).toEqual(["4.00", "1.00"])
    expect(await findings()).toEqual([])
  })

  it("ends the submission of what its payer sends next, and of the rest of it", async () => {
    const { deposit, payout } = await overpaid()
    await arrive(deposit, 2, 5_000_000n)
    await db()
      .insertInto("submissions")
      .values({
        resource_id: deposit.resource_id,
        by_sender: true,
        chain_id: chainId,
        tx_hash: hashOf(2),
        address: payer,
        ...freshSubmission(service.ctx.now()),
        run_at: null,
      })
      .execute()
    const submissions = () => db().selectFrom("submissions").select(["status", "reason"]).execute()
    await settle()
    expect(await states()).toEqual([["returned", "overpaid", 4_000_000n]])
    expect(await submissions()).toEqual([{ status: "failed", reason: "already_used" }])
    await end(payout, true)
    await later()
    expect(await giveBack((await payments())[0]?.id ?? "")).toBe(200)
    expect(await submissions()).toEqual([{ status: "failed", reason: "already_used" }])
  })

  it("frees no money that was divided: a return of it would be another payer's", async () => {
    const recipients = [70, 30].map((percent, i) => ({ address: `0x${`a${i}`.repeat(20)}`, percent }))
    const { body: split } = await post("splits", { name: "Band", recipients })
    const deposit = await sell("paywalls", { splitId: split.id })
    await arrive(deposit, 1, 3_000_000n)
    await settle()
    await arrive(deposit, 2, 6_000_000n)
    await settle()
    const [payment] = await payments()
    expect(await giveBack(payment?.id ?? "")).toBe(200)
    for (const { id } of await payouts()) await sign(id)
    await change(2, { state: "gone" })
    await settle()
    await arrive(deposit, 8, 4_900_000n, OTHER)
    await arrive(deposit, 3, 5_000_000n)
    await settle()
    await later()
    const freed = (await payments()).find(row => row.payer === payer && row.status === "open")
    expect([freed?.amount, await giveBack(freed?.id ?? "")]).toEqual([3_000_000n, 409])
    expect(await findings()).toEqual([])
  })

  it("stays returned where the payment is back as it was", async () => {
    const { payout } = await overpaid()
    await change(1, { state: "confirmed" })
    await settle()
    await end(payout, true)
    await later()
    expect(await states()).toEqual([["granted", "overpaid", 9_000_000n]])
    expect(await findings()).toEqual([])
  })
})

describe.each(["checkouts", "paywalls"] as const)(
  "of %s, a decided payment whose transfer a reorg mined again from another sender",
  what => {
    const other = `0x${"c".repeat(40)}` as Address
    const underpaid = async () => {
      const deposit = await sell(what)
      await arrive(deposit, 1, 3_000_000n)
      await settle()
      return (await payments())[0]?.id ?? ""
    }
    const moved = async () => {
      const moved = { from_address: other, reorged_at: service.ctx.now(), run_at: service.ctx.now() }
      await db().updateTable("transfers").set(moved).execute()
      await settle()
      await later()
    }

    it("stays accepted at a checkout, which is paid by whoever sends; at a paywall it is the new sender's", async () => {
      const id = await underpaid()
      expect((await post(`payments/${id}/accept`, {})).status).toBe(200)
      await moved()
      expect((await payments()).map(row => [row.payer, row.status, row.amount])).toEqual(
        what === "checkouts"
          ? [[payer, "granted", 3_000_000n]]
          : [
              [payer, "reversed", 3_000_000n],
              [other, "open", 3_000_000n],
            ],
      )
      expect(await findings()).toEqual([])
    })

    it("is not returned to the sender of before: the money waits as the new sender's", async () => {
      const id = await underpaid()
      expect(await giveBack(id)).toBe(200)
      await moved()
      const rows = (await payments()).map(row => [row.id === id, row.payer, row.status, row.amount])
      expect(rows).toEqual([
        [true, payer, "reversed", 3_000_000n],
        [false, other, "open", 3_000_000n],
      ])
      expect((await payouts()).map(row => row.state)).toEqual(["cancelled"])
      expect(await findings()).toEqual([])
    })

    it("waits as the new sender's too where the return was signed and has failed", async () => {
      const id = await underpaid()
      expect(await giveBack(id)).toBe(200)
      const [payout] = await payouts()
      await sign(payout?.id ?? "")
      await moved()
      expect(await states()).toEqual([["returned", "underpaid", 3_000_000n]])
      await end(payout?.id ?? "", false)
      await later()
      await later()
      expect((await payments()).filter(row => row.status === "open").map(row => [row.payer, row.amount])).toEqual([
        [other, 3_000_000n],
      ])
      expect(await findings()).toEqual([])
    })
  },
)

/** Nothing is hidden, counted twice or waits for nothing, once every return has ended and all is settled. */
async function expectListed(): Promise<void> {
  expect(await findings()).toEqual([])
  const { rows } = await sql<{ id: string; status: string; amount: bigint; there: bigint; left: bigint; sent: bigint }>`
    select p.id, p.status, p.amount, coalesce(sum(t.value), 0) as there, coalesce(sum(t.value - c.given_back), 0) as left,
      (select coalesce(sum(i.amount), 0) from payouts i where i.payment_id = p.id and i.kind = 'return'
        and i.state not in ('cancelled', 'reverted'))::numeric(78,0) as sent
    from payments p left join (claims c join transfers t on t.id = c.transfer_id and t.state <> 'gone')
      on c.payment_id = p.id group by p.id`.execute(db())
  for (const row of rows) {
    const { status, amount, there, left, sent } = row
    if (status === "returned") expect(there, JSON.stringify({ row }, text)).toBeLessThanOrEqual(sent)
    if (status === "open" || status === "granted") expect(left, JSON.stringify({ row }, text)).toBe(amount)
  }
  const unclaimed = await sql`select from transfers t where t.state <> 'gone'
    and not exists (select from claims c where c.transfer_id = t.id)`.execute(db())
  expect(unclaimed.rows.length, "transfers that count for nothing").toBe(0)
  // Who owes what was sent back has nothing that waits.
  const owes = rows.some(({ status, there, sent }) => status === "returned" && there < sent)
  expect(owes && rows.some(({ status }) => status === "open"), JSON.stringify(rows, text)).toBe(false)
}
const text = (_key: string, value: unknown) => (typeof value === "bigint" ? `${value}` : value)

it.each(["paywalls", "checkouts"] as const)(
  "of %s, all money is in the list, whatever reorgs and returns do to it",
  async what => {
    const step = fc.record({
      what: fc.constantFrom(
        "pay",
        "pay",
        "settle",
        "settle",
        "return",
        "return",
        "accept",
        "sign",
        "sign",
        "final",
        "revert",
        "gone",
        "back",
        "other",
      ),
      which: fc.nat(30),
      value: fc.bigInt({ min: 1_000n, max: 9_000_000n }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 10, maxLength: 40, size: "max" }), async steps => {
        await begin()
        const deposit = await sell(what)
        let paid = 0
        for (const { what, which, value } of steps) {
          const one = <T>(of: T[]): T | undefined => of[which % Math.max(1, of.length)]
          const returns = (await payouts()).filter(row => row.kind === "return")
          const n = 1 + (which % Math.max(1, paid))
          if (what === "pay") await arrive(deposit, ++paid, value)
          if (what === "settle") await later()
          if (what === "gone") await change(n, { state: "gone" })
          if (what === "back") await change(n, { state: "confirmed" })
          if (what === "other") await change(n, { value })
          const open = (await payments()).filter(row => row.status === "open" || row.exception === "overpaid")
          if (what === "return") await giveBack(one(open)?.id ?? "")
          if (what === "accept") await post(`payments/${one(open)?.id}/accept`, {})
          const waiting = one(returns.filter(row => row.state === "queued" || row.state === "held"))
          if (what === "sign" && waiting) await sign(waiting.id).catch(() => undefined)
          const flying = one(returns.filter(row => row.state === "assigned"))
          if ((what === "final" || what === "revert") && flying) await end(flying.id, what === "final")
        }
        await later()
        for (const { id, kind, state } of await payouts())
          if (kind === "return" && state === "assigned") await end(id, true)
          else if (kind === "return" && (state === "queued" || state === "held"))
            await sign(id)
              .then(() => end(id, true))
              .catch(() => undefined)
        for (let i = 0; i < 4; i++) await later()
        await expectListed()
      }),
      { numRuns: 25 },
    )
  },
)
