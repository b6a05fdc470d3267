// Each row of the payments' books that somebody deletes or moves by hand is found, whatever the status of its payment.
import { sql } from "kysely"
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { byHand } from "../../../test/books.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { settleDue } from "../settlement/settle.ts"
import { checkConsistency } from "./check-consistency.ts"

let service: TestService
let key: string
const as = { as: "shop" }
const db = () => service.ctx.db
const payerOf = (n: number) => `0x${(n + 1).toString(16).padStart(40, "b")}` as Address
let placed = 0

beforeAll(async () => {
  service = await startService()
  await service.merchant("shop")
  key = (await service.call("POST", "/api/console/api-keys", { name: "Server" }, as)).body.key
  await liveEveryLife()
})
afterAll(() => service.stop())

class Back extends Error {}

async function settle(): Promise<void> {
  await settleDue(service.ctx, paperNetwork)
}

/** A confirmed transfer as the scan would have stored it. */
async function arrive(deposit: Row<"deposits">, usd: number): Promise<void> {
  const now = service.ctx.now()
  const tx_hash = `0x${(++placed).toString(16).padStart(64, "0")}` as Hash
  const place = { block_number: BigInt(placed), block_hash: tx_hash, log_index: 0, block_time: now }
  const { chainId: chain_id, token } = paperNetwork
  const from_address = payerOf(Number(deposit.id))
  await db()
    .insertInto("transfers")
    .values({
      chain_id,
      tx_hash,
      token: token.address,
      to_address: deposit.address,
      k: 0,
      deposit_id: deposit.id,
      ...place,
      from_address,
      value: BigInt(usd) * 1_000_000n,
      run_at: now,
      created_at: now,
      state: "final",
    })
    .execute()
  if (deposit.resource_id.startsWith("pw_"))
    await service.call("POST", `/api/paywalls/${deposit.resource_id}/pay`, { txHash: tx_hash, address: from_address })
}

/** Something that costs 5, and its deposit. */
async function sell(kind: "paywall" | "checkout"): Promise<Row<"deposits">> {
  const made =
    kind === "paywall"
      ? await service.call("POST", "/api/console/paywalls", { name: "a", price: 5 }, as)
      : await service.call("POST", "/api/checkouts", { amount: 5 }, { headers: { "x-api-key": key } })
  const { id } = made.body
  return await db().selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
}

/** Payments that are granted, open, accepted, returned, reversed, each in two parts; at paywalls and at checkouts. */
async function liveEveryLife(): Promise<void> {
  for (const kind of ["paywall", "checkout"] as const)
    for (const end of ["granted", "open", "accepted", "returned", "reversed"]) {
      const deposit = await sell(kind)
      const parts = end === "granted" || end === "reversed" ? [2, 3] : [1, 2]
      for (const part of parts) await arrive(deposit, part)
      await settle()
      const of = db().selectFrom("claims").innerJoin("transfers", "transfers.id", "claims.transfer_id")
      const { payment_id: id } = await of
        .select("payment_id")
        .where("deposit_id", "=", deposit.id)
        .limit(1)
        .executeTakeFirstOrThrow()
      if (end === "accepted") await service.call("POST", `/api/console/payments/${id}/accept`, {}, as)
      const address = `0x${"99".repeat(20)}`
      if (end === "returned") await service.call("POST", `/api/console/payments/${id}/return`, { address }, as)
      if (end !== "reversed") continue
      // The database refuses to remove final transfers, except in this way.
      await sql`update transfers set state = 'gone', run_at = ${service.ctx.now()} where deposit_id = ${deposit.id}`.execute(
        db(),
      )
      await settle()
    }
}

/**
 * Returns what the reconciliation finds after a statement that bypasses every trigger; the statement is rolled back.
 */
async function saidAfter(statement: string): Promise<string[]> {
  let said: string[] = []
  const work = inTransaction(service.ctx, async ctx => {
    expect(await byHand(ctx.db, statement)).toBe(1)
    said = (await checkConsistency(ctx, paperNetwork.chainId)).map(({ words }) => words)
    throw new Back()
  })
  await expect(work).rejects.toThrow(Back)
  return said
}

describe("of payments that are granted, open, accepted, returned and reversed", () => {
  it("nothing is wrong before a hand is laid on a row", async () => {
    const statuses = await db().selectFrom("payments").select(["status", "accepted_at"]).execute()
    const kinds = statuses.map(({ status, accepted_at }) => (accepted_at ? "accepted" : status)).sort()
    expect([...new Set(kinds)]).toEqual(["accepted", "granted", "open", "returned", "reversed"])
    expect((await db().selectFrom("claims").selectAll().execute()).length).toBe(20)
    expect(await checkConsistency(service.ctx, paperNetwork.chainId)).toEqual([])
  })

  it("each claim that is deleted, or moved to any other payment, is found", async () => {
    const claims = await db().selectFrom("claims").selectAll().execute()
    const payments = await db().selectFrom("payments").select("id").execute()
    const missed: string[] = []
    for (const { transfer_id: id, payment_id: own } of claims) {
      const one = `where transfer_id = ${id}`
      const others = payments.filter(payment => payment.id !== own)
      const statements = [
        `delete from claims ${one}`,
        `update claims set transfer_id = 4711 ${one}`,
        ...others.map(other => `update claims set payment_id = '${other.id}' ${one}`),
      ]
      for (const statement of statements) if ((await saidAfter(statement)).length === 0) missed.push(statement)
    }
    expect(missed).toEqual([])
  })

  it("each payment, book of claims and deposit that is deleted is found", async () => {
    const missed: string[] = []
    for (const [table, column] of [
      ["payments", "id"],
      ["claim_books", "payment_id"],
      ["deposits", "id"],
    ] as const) {
      const { rows } = await sql<{
        id: string
      }>`select ${sql.ref(column)}::text as id from ${sql.table(table)}`.execute(db())
      expect(rows.length).toBe(10)
      for (const { id } of rows) {
        const statement = `delete from ${table} where ${column}::text = '${id}'`
        if ((await saidAfter(statement)).length === 0) missed.push(statement)
      }
    }
    expect(missed).toEqual([])
  })
})

it("a transfer that counts for nothing is found where it is marked as applied, and no other is", async () => {
  const applied = () => db().selectFrom("transfers").select("id").where("applied", "=", true).execute()
  const counted = sql<{ id: bigint }>`select c.transfer_id as id from claims c join payments p on p.id = c.payment_id
    where p.status = 'granted' and p.accepted_at is null order by 1`
  const before = await applied()
  const known = before.map(({ id }) => id).sort()
  // Exactly those of payments that settlement granted; those that the merchant decided about later are not marked.
  expect(known).toEqual((await counted.execute(db())).rows.map(({ id }) => id).sort())
  const { rows: free } = await sql<{
    id: string
  }>`select t.id::text from transfers t left join claims c on c.transfer_id = t.id
    left join payments p on p.id = c.payment_id where p.id is null or p.status in ('open', 'reversed')`.execute(db())
  expect(free.length).toBeGreaterThan(0)
  for (const { id } of free)
    expect(await saidAfter(`update transfers set applied = true where id = ${id}`)).toEqual([
      `the row ${id} of transfers is marked as applied; no payment that is granted or returned claims it`,
    ])
})

it("a transfer is applied no more once its claim is deleted or moved", async () => {
  const [{ id: other } = { id: "" }] = await db()
    .selectFrom("payments")
    .select("id")
    .where("status", "=", "open")
    .execute()
  for (const change of ["delete from claims", `update claims set payment_id = '${other}'`]) {
    const work = inTransaction(service.ctx, async ctx => {
      const applied = () => ctx.db.selectFrom("transfers").select("id").where("applied", "=", true).execute()
      const [first, ...rest] = await applied()
      await sql`${sql.raw(change)} where transfer_id = ${first?.id}`.execute(ctx.db)
      expect(new Set(await applied())).toEqual(new Set(rest))
      throw new Back()
    })
    await expect(work).rejects.toThrow(Back)
  }
})

it("a claim that a hand deletes with the triggers on is found where its payment's amount contradicts it", async () => {
  const payments = await db().selectFrom("payments").selectAll().where("status", "<>", "reversed").execute()
  for (const { id } of payments) {
    const work = inTransaction(service.ctx, async ctx => {
      await sql`delete from claims where transfer_id = (select min(transfer_id) from claims where payment_id = ${id})`.execute(
        ctx.db,
      )
      const [found] = await checkConsistency(ctx, paperNetwork.chainId)
      expect(found?.words).toContain(`the row ${id} of payments says`)
      throw new Back()
    })
    await expect(work).rejects.toThrow(Back)
  }
})

it("nobody makes an address look like one of an older factory: not by a statement, nor unseen", async () => {
  const { deposit_id: id } = await db().selectFrom("payouts").select("deposit_id").limit(1).executeTakeFirstOrThrow()
  const older = `approver = '0x${"0".repeat(40)}', factory = '0x${"9".repeat(40)}', owner = '0x${"7".repeat(40)}'`
  const statement = `update deposits set ${older}, older_factory = true where id = ${id}`
  await expect(sql.raw(statement).execute(db())).rejects.toThrow("was made by this version")
  const [marked] = await saidAfter(statement)
  expect(marked).toContain(`by the row ${id} of deposits it is 0x9999`)
  const [unmarked] = await saidAfter(`update deposits set ${older} where id = ${id}`)
  expect(unmarked).toContain(`row ${id} of deposits is called an address of an older factory`)
})
