// Decisions about open payments: one of two wins, settlement undoes none, and nothing is ever paid twice.
import { mkdtempSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import fc from "fast-check"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sweepDue } from "../payouts/make-payouts.ts"
import { returnAgain } from "../payouts/make-returns.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { freshSubmission } from "../scanner/queries.ts"
import { settleDue } from "./settle.ts"

let service: TestService
let shop: { id: string; deposit: Row<"deposits"> }
let session: { id: string; deposit: Row<"deposits"> }
let key: string

/** The errors that rounds logged; a group that fails would be retried for ever. */
const failures: unknown[] = []

beforeAll(async () => {
  service = await startService()
  service.ctx.log.error = (...said: unknown[]) => void failures.push(said)
})
afterAll(() => service.stop())
beforeEach(() => open())

const as = { as: "shop" }
const db = () => service.ctx.db
const other = `0x${"0d".repeat(20)}` as Address
const payerOf = (n: number) => `0x${(n + 1).toString(16).padStart(40, "b")}` as Address
const backTo = `0x${"99".repeat(20)}`
let hashes = 0
const nextHash = () => `0x${(++hashes).toString(16).padStart(64, "0")}` as Hash

/** An empty service with a paywall and a checkout of 5 USDC. */
async function open(split = false): Promise<void> {
  await service.empty()
  await service.merchant("shop")
  const recipients = [0, 1].map(n => ({ address: payerOf(70 + n), percent: 50 }))
  const made = split ? await service.call("POST", "/api/console/splits", { name: "s", recipients }, as) : undefined
  const more = made ? { splitId: made.body.id } : {}
  key = (await service.call("POST", "/api/console/api-keys", { name: "Server" }, as)).body.key
  shop = await shopOf(
    (await service.call("POST", "/api/console/paywalls", { name: "a", price: 5, ...more }, as)).body.id,
  )
  session = await newSession(more)
}

async function shopOf(id: string) {
  const deposit = await db().selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
  return { id, deposit }
}

async function newSession(more: object = {}) {
  const options = { headers: { "x-api-key": key } }
  const { id } = (await service.call("POST", "/api/checkouts", { amount: 5, ...more }, options)).body
  return { id: id as string, deposit: await depositOf(id) }
}

const depositOf = (sessionId: string) =>
  db().selectFrom("deposits").selectAll().where("resource_id", "=", sessionId).executeTakeFirstOrThrow()

/** Stores a confirmed transfer as the scan would, due now, and submitted if it is to a paywall. */
async function arrive(deposit: Row<"deposits">, usd: number, from = 0, token = paperNetwork.token.address) {
  const now = service.ctx.now()
  const tx_hash = nextHash()
  await db()
    .insertInto("transfers")
    .values({
      chain_id: paperNetwork.chainId,
      tx_hash,
      token,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      from_address: payerOf(from),
      value: BigInt(usd) * 1_000_000n,
      block_number: BigInt(hashes),
      block_hash: tx_hash,
      log_index: 0,
      block_time: now,
      state: "confirmed",
      run_at: now,
      created_at: now,
    })
    .execute()
  if (deposit.resource_id.startsWith("pw_"))
    await service.call("POST", `/api/paywalls/${deposit.resource_id}/pay`, { txHash: tx_hash, address: payerOf(from) })
}

async function settle(): Promise<void> {
  await settleDue(service.ctx, paperNetwork)
  expect(failures).toEqual([])
}

/** Waits until another connection waits for a lock of this one; with one connection there is nothing to wait for. */
async function waitsForLock(): Promise<void> {
  const waiting = sql<{ n: number }>`select count(*)::int as n from pg_stat_activity
    where datname = current_database() and wait_event_type = 'Lock'`
  while (onPostgres && (await waiting.execute(db())).rows[0]?.n === 0);
}

/** Changes the only transfer as a reorg does that mines it again with another amount. */
const becomes = (usd: number) =>
  db()
    .updateTable("transfers")
    .set({ value: BigInt(usd) * 1_000_000n, reorged_at: service.ctx.now(), run_at: service.ctx.now() })
    .execute()

const accept = (id: string) => service.call("POST", `/api/console/payments/${id}/accept`, {}, as)
const giveBack = (id: string, address = backTo) =>
  service.call("POST", `/api/console/payments/${id}/return`, { address }, as)
const payments = (status?: Row<"payments">["status"]): Promise<Row<"payments">[]> =>
  db()
    .selectFrom("payments")
    .selectAll()
    .$if(status !== undefined, query => query.where("status", "=", status ?? "open"))
    .orderBy("created_at")
    .orderBy("id")
    .execute()
const payouts = () => db().selectFrom("payouts").selectAll().orderBy("created_at").orderBy("id").execute()

describe(`a return and an accept at once (${onPostgres ? "several connections" : "one connection"})`, () => {
  it.each(["paywall", "checkout"])("at a %s: one wins, the other is refused, and one thing happens", async what => {
    await open(true)
    const won = { granted: 0, returned: 0 }
    for (let i = 0; i < 12; i++) {
      const { deposit } = what === "paywall" ? shop : await newSession()
      await arrive(deposit, 2, i)
      await settle()
      const [payment] = await payments("open")
      if (!payment) throw new Error("nothing waits")
      const before = (await payouts()).length
      const decisions = [() => accept(payment.id), () => giveBack(payment.id), () => giveBack(payment.id), settle]
      const turned = i % 2 === 0 ? decisions : decisions.toReversed()
      const answers = await Promise.all(turned.map(decide => decide()))
      const statuses = answers.flatMap(answer => (answer ? [answer.status] : [])).sort()
      expect(statuses).toEqual([200, 409, 409])
      const { status } = await db()
        .selectFrom("payments")
        .select("status")
        .where("id", "=", payment.id)
        .executeTakeFirstOrThrow()
      won[status as keyof typeof won]++
      const made = (await payouts()).slice(before).filter(row => row.payment_id === payment.id)
      const grants = await db().selectFrom("grants").selectAll().where("payment_id", "=", payment.id).execute()
      if (status === "returned") {
        expect(made).toMatchObject([{ kind: "return", amount: 2_000_000n, recipient: backTo }])
        expect(grants).toEqual([])
      } else {
        expect(status).toBe("granted")
        expect(made.filter(row => row.kind === "return")).toEqual([])
        expect(grants.length).toBe(what === "paywall" ? 1 : 0)
      }
    }
    expect(won.granted + won.returned).toBe(12)
  })

  it("waits for what the chain's rounds hold, and neither keeps the other for ever", async () => {
    for (const decide of [accept, giveBack]) {
      const { deposit } = await newSession()
      await arrive(deposit, 2)
      await settle()
      const [payment] = await payments("open")
      const own = (await db().selectFrom("transfers").selectAll().orderBy("id", "desc").limit(1).execute())[0]?.id ?? 0n
      const answer = await db()
        .transaction()
        .execute(async tx => {
          const transfer = tx.updateTable("transfers").where("id", "=", own)
          await transfer.set({ suspect_at: service.ctx.now() }).execute()
          const answer = decide(payment?.id ?? "")
          await waitsForLock()
          // This changes its book.
          await transfer.set({ state: "gone", run_at: service.ctx.now() }).execute()
          return { answer }
        })
      expect((await answer.answer).status).toBe(409)
      await settle()
      expect(await payments("open")).toEqual([])
    }
  })

  it("accepted many times at once it grants once", async () => {
    await arrive(shop.deposit, 2)
    await settle()
    const [payment] = await payments("open")
    const answers = await Promise.all(Array.from({ length: 8 }, () => accept(payment?.id ?? "")))
    expect(answers.map(answer => answer.status).sort()).toEqual([200, ...Array(7).fill(409)])
    expect((await db().selectFrom("grants").selectAll().execute()).length).toBe(1)
  })
})

describe("a flood", () => {
  it("of more senders than a statement takes is screened", async () => {
    const path = join(mkdtempSync(join(tmpdir(), "sluice-")), "list")
    const many = Array.from({ length: 14_000 }, (_, n) => `0x${n.toString(16).padStart(40, "0")}` as Address)
    writeFileSync(path, many[3] ?? "")
    service.ctx.settings.sanctionsFile = path
    const screened = await screen(service.ctx, many, "test").finally(() => {
      service.ctx.settings.sanctionsFile = undefined
    })
    expect(screened.size).toBe(14_000)
    expect(many.filter(address => screened.get(address) !== "clear")).toEqual([many[3]])
  })

  it("at one paywall does not keep the buyer of another waiting", async () => {
    const other = await shopOf(
      (await service.call("POST", "/api/console/paywalls", { name: "b", price: 5 }, as)).body.id,
    )
    const [first, last] = shop.id < other.id ? [shop, other] : [other, shop]
    await dust(first.deposit, 510)
    await arrive(last.deposit, 5)
    await settle()
    expect(await payments("granted")).toMatchObject([{ resource_id: last.id }])
  })

  it("at one checkout: what is worth most waits for the merchant, and the rest as that is decided", async () => {
    await dust(session.deposit, 520)
    await arrive(session.deposit, 5, 1_000)
    await arrive(session.deposit, 4, 1_001)
    await settle()
    expect((await payments("open")).length).toBe(500)
    const [greatest] = (await payments("open")).sort((a, b) => (a.amount < b.amount ? 1 : -1))
    expect(greatest).toMatchObject({ amount: 4_000_000n, payer: payerOf(1_001) })
    expect((await giveBack(greatest?.id ?? "")).status).toBe(200)
    expect((await payments("open")).length).toBe(500)
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  })

  /** Stores transfers of one base unit from `senders` senders. */
  const dust = (deposit: Row<"deposits">, senders: number) =>
    sql`insert into transfers (chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number,
        block_hash, log_index, block_time, state, run_at, created_at)
      select ${paperNetwork.chainId}, '0x' || lpad(to_hex(n + ${deposit.id}::int * 100000), 64, 'd'), ${paperNetwork.token.address},
        ${deposit.address}, 0, ${deposit.id}, '0x' || lpad(to_hex(n), 40, 'e'), 1, 1000000000, '0x' || repeat('1', 64), n, at, 'confirmed', at, at
      from generate_series(1, ${senders}::int) n, (values (${new Date(service.ctx.now().getTime() - 3_600_000)}::timestamptz)) as t (at)`.execute(
      db(),
    )
})

describe("what is decided", () => {
  it("is not undone by a decision about a payment whose money is moving", async () => {
    await arrive(shop.deposit, 2)
    await settle()
    const [payment] = await payments("open")
    await db().updateTable("transfers").set({ state: "seen" }).execute()
    for (const answer of [await accept(payment?.id ?? ""), await giveBack(payment?.id ?? "")])
      expect(answer).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
    expect(await payouts()).toEqual([])
  })

  it.each(["returned", "accepted beside"])("ends a hash that is submitted after its money was %s", async what => {
    const { id, deposit } = session
    if (what === "accepted beside") await arrive(deposit, 5, 1)
    await arrive(deposit, 2)
    await settle()
    const [waits] = await payments("open")
    expect((await (what === "returned" ? giveBack : accept)(waits?.id ?? "")).status).toBe(200)
    const txHash = waits?.tx_hash
    // The scan links the submission to its transfer, which is settled again.
    const named = {
      resource_id: id,
      by_sender: false,
      chain_id: paperNetwork.chainId,
      tx_hash: txHash as Hash,
      address: null,
    }
    await db()
      .insertInto("submissions")
      .values({ ...named, ...freshSubmission(service.ctx.now()), run_at: null })
      .execute()
    await db()
      .updateTable("transfers")
      .set({ run_at: service.ctx.now() })
      .where("tx_hash", "=", named.tx_hash)
      .execute()
    await settle()
    const { submission } = (await service.call("GET", `/api/pay/status/${id}?txHash=${txHash}`)).body
    expect(submission).toMatchObject({ txHash, status: "granted" })
  })

  it("stands whatever comes, in any order; nothing is stranded, counted twice or promised twice", async () => {
    const kinds = ["arrive", "other token", "accept", "return", "settle", "sign", "cancel", "gone", "back", "remined"]
    const step = fc.record({
      // Without money nothing can happen.
      kind: fc.constantFrom(...kinds, "arrive" as const, "arrive" as const, "settle" as const, "settle" as const),
      usd: fc.integer({ min: 1, max: 7 }),
      who: fc.integer({ min: 0, max: 1 }),
      at: fc.boolean(),
      pick: fc.nat(),
    })
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { minLength: 10, maxLength: 30, size: "max" }),
        fc.boolean(),
        async (steps, split) => {
          await open(split)
          const decided = new Map<string, string>()
          let reorgs = 0
          for (const { kind, usd, who, at, pick } of steps) {
            const of = <T>(rows: readonly T[]): T | undefined => rows[pick % Math.max(1, rows.length)]
            if (kind === "arrive") await arrive((at ? shop : session).deposit, usd, who)
            if (kind === "other token") await arrive((at ? shop : session).deposit, usd, who, other)
            if (kind === "settle") await settle()
            if (kind === "sign") await sign(of(await due())?.id)
            if (kind === "cancel") {
              const row = of((await due()).filter(each => each.kind === "return"))
              if (row) await db().updateTable("payouts").set({ state: "cancelled" }).where("id", "=", row.id).execute()
              if (row?.payment_id) decided.delete(row.payment_id)
            }
            if (kind === "remined") {
              reorgs++
              await remine(of(await transfersIn("confirmed"))?.id, usd, at ? who : undefined)
              await settle()
              decided.clear()
            }
            if (kind === "gone" || kind === "back") {
              reorgs++
              await move(of(await transfersIn(kind === "gone" ? "confirmed" : "gone"))?.id, kind)
              await settle()
              decided.clear()
            }
            const waits = of(await payments("open"))
            if (waits && (kind === "accept" || kind === "return")) {
              const answer = await (kind === "accept" ? accept(waits.id) : giveBack(waits.id))
              // Money that was paid out before a reorg is not paid again.
              const refused = kind === "return" && reorgs > 0 && answer.status === 409
              expect(answer.status, JSON.stringify(answer.body)).toBe(refused ? 409 : 200)
              if (!refused) decided.set(waits.id, answer.body.status)
            }
            for (const row of await payments())
              if (decided.has(row.id)) expect([row.id, row.status]).toEqual([row.id, decided.get(row.id)])
            await holds(reorgs === 0)
          }
          for (const { id } of await transfersIn("gone")) await move(id, "back")
          // A transfer that got another sender when it was mined again is not submitted, so it is settled after ten
          // minutes.
          service.advance(11 * 60_000)
          for (let i = 0; i < 2; i++) await settle()
          await holds(reorgs === 0)
          const stranded = await sql<{ n: number }>`select count(*)::int as n from transfers t
          where not exists (select from claims c where c.transfer_id = t.id)`.execute(db())
          expect(stranded.rows[0]?.n).toBe(0)
        },
      ),
      { numRuns: onPostgres ? 15 : 20 },
    )
  })

  it.each(["paywall", "checkout"])(
    "at a %s: an acceptance stands when its money returns on one endpoint's report first",
    async what => {
      await open(true)
      const { deposit } = what === "paywall" ? shop : session
      await arrive(deposit, 3)
      await settle()
      const [waiting] = await payments("open")
      expect((await accept(waiting?.id ?? "")).status).toBe(200)
      const change = async (to: Partial<Row<"transfers">>) => {
        await db()
          .updateTable("transfers")
          .set({ ...to, run_at: service.ctx.now() })
          .execute()
        await settle()
        return (await payments()).map(({ id, status, accepted_at }) => ({
          id,
          status,
          isAccepted: accepted_at !== null,
        }))
      }
      const payment = { id: waiting?.id, isAccepted: true }
      expect(await change({ state: "gone" })).toEqual([{ ...payment, status: "reversed" }])
      expect(await change({ state: "confirmed", single_source: true })).toEqual([{ ...payment, status: "reversed" }])
      expect((await payouts()).filter(row => row.state !== "cancelled")).toEqual([])
      // The other endpoint confirms it.
      expect(await change({ single_source: false })).toEqual([{ ...payment, status: "granted" }])
      expect((await payouts()).filter(row => row.state !== "cancelled").map(row => row.amount)).toEqual([
        1_500_000n,
        1_500_000n,
      ])
    },
  )

  it("is taken again of what is left, where one endpoint alone brought the rest back and it is gone again", async () => {
    await arrive(shop.deposit, 2)
    await arrive(shop.deposit, 1)
    await settle()
    const [waiting] = await payments("open")
    expect((await accept(waiting?.id ?? "")).status).toBe(200)
    const change = async (amounts: bigint[], to: Partial<Row<"transfers">>) => {
      await db()
        .updateTable("transfers")
        .set({ ...to, run_at: service.ctx.now() })
        .where("value", "in", amounts)
        .execute()
      await settle()
      return (await payments()).map(({ status, amount, accepted_at }) => ({ status, amount, accepted: !!accepted_at }))
    }
    const two = 2_000_000n
    const one = 1_000_000n
    await change([two, one], { state: "gone" })
    await change([one], { state: "confirmed", single_source: true })
    const reversed = [{ status: "reversed", amount: two + one, accepted: true }]
    expect(await change([two], { state: "confirmed" })).toEqual(reversed)
    const left = [{ status: "open", amount: two, accepted: false }]
    expect(await change([one], { state: "gone" })).toEqual(left)
  })

  it("returns what one endpoint alone has when the other has it too, and says until then why it waits", async () => {
    await arrive(shop.deposit, 3)
    await db().updateTable("transfers").set({ single_source: true }).execute()
    await settle()
    const id = (await payments("open"))[0]?.id ?? ""
    expect((await giveBack(id)).status).toBe(200)
    const { body } = await service.call("GET", "/api/console/payments", undefined, as)
    const [row] = (body.data as { return: { state: string; reason: string } }[]) ?? []
    expect(row?.return).toMatchObject({
      state: "held",
      reason: expect.stringMatching(/not every node has the money yet/),
    })
  })

  it("stops a return that is not signed when its money, mined again, is less or another's", async () => {
    for (const { deposit } of [shop, session])
      for (const from of [undefined, 1]) {
        await arrive(deposit, 3)
        await settle()
        const [payment] = await payments("open")
        expect((await giveBack(payment?.id ?? "")).status).toBe(200)
        const [transfer] = await db().selectFrom("transfers").selectAll().orderBy("id", "desc").limit(1).execute()
        service.advance(11 * 60_000)
        await remine(transfer?.id, 1, from)
        await settle()
        expect((await payouts()).at(-1)?.state).toBe("cancelled")
        // Its new sender is screened when it is tried again.
        service.advance(10 * 60_000)
        await settle()
        const [waits] = await payments("open")
        const whose = { payer: payerOf(from ?? 0), amount: from === undefined ? 1_000_000n : 3_000_000n }
        expect(waits).toMatchObject(whose)
        expect((await giveBack(waits?.id ?? "")).status).toBe(200)
        await sign((await payouts()).at(-1)?.id)
        await holds(false)
      }
  })

  it("does not return what was recovered from its address since, and says so", async () => {
    await arrive(session.deposit, 3)
    await settle()
    const { id } = await db().selectFrom("payments").select("id").where("status", "=", "open").executeTakeFirstOrThrow()
    await sql`insert into outflows (chain_id, deposit_id, merchant_id, reason, tx_hash, token, recipient, amount, block_number,
        block_hash, log_index, block_time, created_at)
      select chain_id, deposit_id, merchant_id, 'recovery', tx_hash, token, ${other}, amount, 9, tx_hash, 0, now(), now()
      from payments where id = ${id}`.execute(db())
    const { status, body } = await service.call("POST", `/api/console/payments/${id}/return`, { address: backTo }, as)
    expect([status, body.error, body.message]).toEqual([
      409,
      "INVALID_OPERATION",
      expect.stringContaining("after the recovery time"),
    ])
    expect(await db().selectFrom("payouts").select("id").execute()).toEqual([])
  })

  it("does not return what was paid out before the chain took a part of it back", async () => {
    for (const split of [true, false]) {
      await open(split)
      await arrive(shop.deposit, 20, 1)
      await arrive(shop.deposit, 3)
      await arrive(shop.deposit, 2)
      await settle()
      const lost = (await transfersIn("confirmed")).at(-1)
      // Without a split, the daily sweep takes it.
      service.advance(25 * 3_600_000)
      await sweepDue(service.ctx, paperNetwork)
      for (const { id } of await due()) await sign(id)
      await move(lost?.id, "gone")
      await settle()
      const [waits] = await payments("open")
      expect(waits?.amount).toBe(3_000_000n)
      const before = (await payouts()).length
      expect(await giveBack(waits?.id ?? "")).toMatchObject({ status: 409, body: { error: "INVALID_OPERATION" } })
      expect((await payouts()).length).toBe(before)
    }
  })

  it("of another address, or with other senders, does not return or divide again what its payees had got", async () => {
    await open(true)
    const splitId = (await db().selectFrom("splits").select("id").executeTakeFirstOrThrow()).id
    await arrive(shop.deposit, 2)
    const recipients = [0, 1].map(n => ({ address: payerOf(80 + n), percent: 50 }))
    expect((await service.call("PUT", `/api/console/splits/${splitId}`, { recipients }, as)).status).toBe(200)
    const moved = await db().selectFrom("deposits").selectAll().where("resource_id", "=", shop.id).execute()
    const second = moved.find(({ id }) => id !== shop.deposit.id)
    if (!second) throw new Error("its address is the same")
    for (const usd of [2, 1]) await arrive(second, usd)
    await arrive(session.deposit, 3)
    await arrive(session.deposit, 2, 1)
    await settle()
    const unsigned = (await due()).find(row => row.deposit_id === second.id && row.share === 1)
    for (const { id } of await due()) if (id !== unsigned?.id) await sign(id)
    const made = (await payouts()).map(row => row.id)
    expect(made.length).toBe(6)
    for (const { id, value } of await transfersIn("confirmed"))
      if (value === 1_000_000n || value === 3_000_000n) await move(id, "gone")
    // Strangers' money at the same addresses.
    await arrive(second, 4, 5)
    await arrive(session.deposit, 2, 6)
    service.advance(25 * 3_600_000)
    await settle()
    const waits = (await payments("open")).filter(({ payer }) => payer !== payerOf(5) && payer !== payerOf(6))
    expect(waits.map(row => [row.deposit_id, row.amount])).toEqual(
      expect.arrayContaining([shop.deposit, second, session.deposit].map(({ id }) => [id, 2_000_000n])),
    )
    for (const { id } of waits) expect([id, (await giveBack(id)).status]).toEqual([id, 409])
    for (const { id } of waits) expect([id, (await accept(id)).status]).toEqual([id, 200])
    // One payee got 1.5 of 3 USDC, and only 2 remain: the other gets the remaining 0.5.
    expect((await payouts()).filter(row => !made.includes(row.id))).toMatchObject([
      { deposit_id: second.id, share: 1, recipient: unsigned?.recipient, amount: 500_000n, reserved: true },
    ])
    const stranger = (await payments("open")).find(({ payer }) => payer === payerOf(5))
    expect(await giveBack(stranger?.id ?? "")).toMatchObject({ status: 200 })
    expect((await payouts()).at(-1)).toMatchObject({ kind: "return", amount: 4_000_000n, reserved: true })
  })

  it("waits for who can't be screened, and for all of a payment that a reorg has reduced meanwhile", async () => {
    for (const usd of [2, 1]) await arrive(shop.deposit, usd)
    await settle()
    const [{ id: first, tx_hash } = { id: 0n, tx_hash: "" }, second] = await transfersIn("confirmed")
    expect(first).not.toBe(0n)
    service.ctx.settings.sanctionsFile = "/nowhere"
    await move(second?.id, "gone")
    await settle()
    service.ctx.settings.sanctionsFile = undefined
    service.advance(31_000)
    await settle()
    expect(await payments()).toMatchObject([{ status: "open", amount: 2_000_000n, tx_hash }])
    await holds(false)
  })

  it("takes one use of a link, however often its checkout is accepted", async () => {
    await service.call("POST", "/api/console/payment-links", { title: "Sale", slug: "sale", amount: 5, maxUses: 5 }, as)
    const { sessionId } = (await service.call("POST", "/api/pay/sessions", { slug: "sale" })).body
    const deposit = await depositOf(sessionId)
    for (const usd of [2, 1]) await arrive(deposit, usd)
    await settle()
    for (const gone of [true, false]) {
      const [payment] = await payments("open")
      expect((await accept(payment?.id ?? "")).status).toBe(200)
      if (gone) await move((await transfersIn("confirmed")).at(-1)?.id, "gone")
      await settle()
      service.advance(31_000)
      await settle()
    }
    const link = await db().selectFrom("payment_links").select("uses").executeTakeFirstOrThrow()
    expect(Number(link.uses)).toBe(1)
  })

  it("is made again while a return reverts, so often and no more; then the payment waits again", async () => {
    await arrive(shop.deposit, 2)
    await settle()
    const [payment] = await payments("open")
    const id = payment?.id ?? ""
    expect((await giveBack(id)).status).toBe(200)
    for (const last of [false, false, true]) {
      const live = (await payouts()).find(row => row.state === "queued" || row.state === "held")
      await db()
        .updateTable("payouts")
        .set({ state: "queued", held_reason: null })
        .where("id", "=", live?.id ?? "")
        .execute()
      await sign(live?.id, false)
      await inTransaction(service.ctx, ctx => returnAgain(ctx, live as Row<"payouts">, 3))
      expect((await payments())[0]).toMatchObject({ id, status: last ? "open" : "returned" })
      const anew = (await payouts()).find(row => row.replaces === live?.id)
      expect(anew?.state).toBe(last ? undefined : "held")
    }
    failures.length = 0
    await settle()
    expect((await payments())[0]).toMatchObject({ id, status: "open", returned_to: null })
    expect(await notifiedOf(id)).toBe(2)
    expect((await giveBack(id, payerOf(5))).status).toBe(200)
    await holds(true)
  })

  it.each(["payment", "surplus"])("is notified of once more when the return of a %s is cancelled", async what => {
    await arrive(shop.deposit, what === "payment" ? 2 : 7)
    await settle()
    const id = (await payments())[0]?.id ?? ""
    expect(await notifiedOf(id)).toBe(1)
    for (const times of [2, 3]) {
      expect((await giveBack(id)).status).toBe(200)
      await settle()
      expect(await notifiedOf(id)).toBe(times - 1)
      await db().updateTable("payouts").set({ state: "cancelled" }).where("kind", "=", "return").execute()
      await settle()
      await settle()
      expect(await notifiedOf(id)).toBe(times)
    }
    // Decided before the next round: no decision is needed any more.
    expect((await giveBack(id)).status).toBe(200)
    await db().updateTable("payouts").set({ state: "cancelled" }).where("kind", "=", "return").execute()
    expect((await accept(id)).status).toBe(200)
    await settle()
    expect(await notifiedOf(id)).toBe(3)
    await holds(true)
  })

  /** How often the merchant was notified that a payment waits, each time with a later time than before. */
  const notifiedOf = async (id: string) => {
    const events = db().selectFrom("events").select("body").where("type", "=", "payment.exception")
    const bodies = await events.where("body", "like", `%${id}%`).orderBy("created_at").execute()
    const times = bodies.map(({ body }) => JSON.parse(body).data.updatedAt)
    expect([...new Set(times)].sort()).toEqual(times)
    return times.length
  }
  const due = async () => (await payouts()).filter(row => row.state === "queued")
  const transfersIn = (state: "confirmed" | "gone") =>
    db().selectFrom("transfers").selectAll().where("state", "=", state).orderBy("id").execute()

  async function move(id: bigint | undefined, where: "gone" | "back"): Promise<void> {
    if (id === undefined) return
    await db()
      .updateTable("transfers")
      .set({ state: where === "gone" ? "gone" : "confirmed", run_at: service.ctx.now() })
      .where("id", "=", id)
      .execute()
  }

  /** Mines a transfer again in another block, with another amount or from another sender. */
  async function remine(id: bigint | undefined, usd: number, from: number | undefined): Promise<void> {
    if (id === undefined) return
    const moved = from === undefined ? { value: BigInt(usd) * 1_000_000n } : { from_address: payerOf(from) }
    await db()
      .updateTable("transfers")
      .set({ ...moved, run_at: service.ctx.now() })
      .where("id", "=", id)
      .execute()
  }

  let nonce = 0n
  /** Gives a payout a nonce and a final receipt, as the engine would; it may have failed. */
  async function sign(id: string | undefined, succeeded = true): Promise<void> {
    if (!id) return
    const wallet = `0x${"ee".repeat(20)}` as Address
    const assigned = db().updateTable("payouts").set({ state: "assigned", wallet, nonce: nonce++ }).where("id", "=", id)
    const isThere = await assigned.execute().then(
      () => true,
      error => {
        // As the engine finds before it signs: a reorg has taken the money.
        if (!/the money of payout .* is not there/.test(String(error))) throw error
        return false
      },
    )
    if (!isThere) return
    const mined = { tx_hash: nextHash(), block_number: 1n, block_hash: nextHash(), succeeded }
    await db()
      .updateTable("payouts")
      .set({ state: succeeded ? "final" : "reverted", ...mined })
      .where("id", "=", id)
      .execute()
  }

  /** Checks what must hold at any time; without reorgs (`quiet`) no deposit ever has a shortfall. */
  async function holds(quiet: boolean): Promise<void> {
    const books = await db().selectFrom("deposit_books").selectAll().execute()
    for (const { inflow, committed, shortfall } of books) {
      expect(committed <= inflow + shortfall).toBe(true)
      if (quiet) expect(shortfall).toBe(0n)
    }
    type Sums = { held: bigint; given_back: bigint; kinds: number; live: bigint; returned: bigint; returns: number }
    const rows = await sql<Row<"payments"> & Sums>`
      select p.*, coalesce(c.held, 0) as held, coalesce(c.given_back, 0) as given_back, coalesce(c.kinds, 0) as kinds,
        coalesce(i.live, 0) as live, coalesce(i.returned, 0) as returned, coalesce(i.returns, 0) as returns
      from payments p
        left join (select c.payment_id, sum(t.value) as held, sum(c.given_back) as given_back,
            count(distinct (t.from_address, t.token, t.deposit_id))::int as kinds
          from claims c join transfers t on t.id = c.transfer_id group by 1) as c on c.payment_id = p.id
        left join (select payment_id, sum(amount) as live, sum(amount) filter (where kind = 'return') as returned,
            (count(*) filter (where kind = 'return'))::int as returns
          from payouts where state not in ('cancelled', 'reverted') group by 1) as i on i.payment_id = p.id`.execute(
      db(),
    )
    for (const { status, amount, beside, resource_id, ...sums } of rows.rows) {
      const { held, given_back, kinds, live, returned, returns } = sums
      // After a reorg an open payment may be about the rest: all but what its final returns have sent back.
      if (status === "open") expect([held - given_back, kinds, returned]).toEqual([amount, 1, given_back])
      if (status === "returned") expect(kinds).toBe(1)
      if (status === "returned") expect(returned >= amount && returns >= 1 && (returns === 1 || !quiet)).toBe(true)
      if (quiet) expect(given_back).toBe(0n)
      if (quiet) expect(live <= amount).toBe(true)
      if (beside) expect(resource_id).toMatch(/^cs_/)
    }
    // `sign` writes no attempts; everything else must add up, or the wallet would be halted.
    const found = await checkConsistency(service.ctx, paperNetwork.chainId)
    expect(found.filter(({ words }) => !words.includes("signed for it is nothing"))).toEqual([])
    const { status } = await db().selectFrom("checkout_sessions").selectAll().executeTakeFirstOrThrow()
    const main = rows.rows.some(row => row.resource_id.startsWith("cs_") && row.status === "granted" && !row.beside)
    expect(main).toBe(status === "confirmed")
  }
})

describe.each(["paywall", "checkout"])("a payment of a %s that a reorg made larger", kind => {
  const deposit = () => (kind === "paywall" ? shop : session).deposit
  const promised = async () => {
    const { rows } = await sql<{
      kind: string
      sum: bigint
    }>`select kind, sum(amount)::numeric(78,0) as sum from payouts
      where state not in ('cancelled', 'reverted') group by 1`.execute(db())
    return rows
  }

  it("pays out all of it where the merchant accepted it", async () => {
    await arrive(deposit(), 3)
    await settle()
    if (kind === "checkout") await sql`update checkout_sessions set expires_at = ${service.ctx.now()}`.execute(db())
    const [payment] = await payments()
    expect((await accept(payment?.id ?? "")).status).toBe(200)
    await becomes(4)
    await settle()
    expect(await payments()).toMatchObject([{ status: "granted", amount: 4_000_000n }])
    service.advance(2 * 86_400_000)
    await sweepDue(service.ctx, paperNetwork)
    expect(await promised()).toEqual([{ kind: "sweep", sum: 4_000_000n }])
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  })

  it("makes no share of what is not sure yet", async () => {
    await open(true)
    await arrive(deposit(), 3)
    await settle()
    const [payment] = await payments()
    expect((await accept(payment?.id ?? "")).status).toBe(200)
    await db().updateTable("transfers").set({ state: "seen" }).execute()
    await becomes(4)
    await settle()
    await db().updateTable("transfers").set({ state: "confirmed", single_source: true }).execute()
    await becomes(4)
    await settle()
    expect(await promised()).toEqual([{ kind: "share", sum: 3_000_000n }])
  })

  it("is open again with all of it where its return was not signed yet", async () => {
    await arrive(deposit(), 3)
    await settle()
    const [payment] = await payments()
    expect((await giveBack(payment?.id ?? "")).status).toBe(200)
    await becomes(4)
    await settle()
    expect(await payments()).toMatchObject([{ status: "open", amount: 4_000_000n }])
    expect((await giveBack(payment?.id ?? "")).status).toBe(200)
    expect(await promised()).toEqual([{ kind: "return", sum: 4_000_000n }])
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  })
})

it("a payment whose access the merchant revoked takes what a reorg brought more, and gives no access again", async () => {
  await arrive(shop.deposit, 5)
  await settle()
  const grant = await db().selectFrom("grants").select("id").executeTakeFirstOrThrow()
  const revoked = await service.call("DELETE", `/api/console/paywalls/${shop.id}/grants/${grant.id}`, undefined, as)
  expect(revoked.status).toBe(200)
  await becomes(7)
  await settle()
  expect(await payments()).toMatchObject([{ status: "granted", amount: 7_000_000n }])
  const verified = await service.call("GET", `/api/paywalls/${shop.id}/verify?address=${payerOf(0)}`)
  expect(verified.body).toMatchObject({ hasAccess: false })
  expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
})
