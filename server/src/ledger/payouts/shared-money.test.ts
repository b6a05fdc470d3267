// Payments that share money since a reorg, and are decided or end at the same moment, on connections of their own.
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { until } from "../../../test/e2e/program.ts"
import { paperNetwork, startService, type TestService } from "../../../test/service.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { checkConsistency } from "../reconciliation/check-consistency.ts"
import { acceptPayment } from "../settlement/resolve-exception.ts"
import { settleDue } from "../settlement/settle.ts"
import { makePayouts } from "./make-payouts.ts"

let service: TestService
let merchantId: string
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(async () => {
  await service.empty()
  merchantId = await service.merchant("shop")
})

const { chainId, token } = paperNetwork
const [payer, first, second] = ["b", "c", "d"].map(digit => `0x${digit.repeat(40)}` as Address) as [
  Address,
  Address,
  Address,
]
const db = () => service.ctx.db
const post = async (path: string, body: object) =>
  (await service.call("POST", `/api/console/${path}`, body, { as: "shop" })).body
const payouts = () => db().selectFrom("payouts").selectAll().orderBy("created_at").orderBy("share").execute()
const settle = async () => {
  service.advance(660_000)
  await settleDue(service.ctx, paperNetwork)
}

async function sell(): Promise<Row<"deposits">> {
  const recipients = [70, 30].map((percent, i) => ({ address: `0x${`e${i}`.repeat(20)}`, percent }))
  const split = (await post("splits", { name: "Band", recipients })).id
  const { id } = await post("paywalls", { name: "Film", price: 1, splitId: split })
  return await db().selectFrom("deposits").selectAll().where("resource_id", "=", id).executeTakeFirstOrThrow()
}

let hashes = 0
/** A confirmed transfer; returns its transaction. */
async function arrive(deposit: Row<"deposits">, from_address: Address, value: bigint): Promise<Hash> {
  const now = service.ctx.now()
  const tx_hash = `0x${(++hashes).toString(16).padStart(64, "0")}` as Hash
  const block = { block_number: BigInt(hashes), block_hash: tx_hash, block_time: now, log_index: 0 }
  await db()
    .insertInto("transfers")
    .values({
      chain_id: chainId,
      tx_hash,
      token: token.address,
      to_address: deposit.address,
      k: 0,
      value,
      deposit_id: deposit.id,
      from_address,
      ...block,
      state: "confirmed",
      run_at: now,
      created_at: now,
    })
    .execute()
  return tx_hash
}

/** Changes a transfer as a reorg does that mines it again from another sender. */
const comesFrom = (hash: Hash, from_address: Address) =>
  db()
    .updateTable("transfers")
    .set({ from_address, reorged_at: service.ctx.now(), run_at: service.ctx.now() })
    .where("tx_hash", "=", hash)
    .execute()

/** A payment of .8 and .2 whose share 0 is signed; then each transfer is mined again from another sender. */
async function shared(): Promise<string[]> {
  const deposit = await sell()
  const sent = [await arrive(deposit, payer, 800_000n), await arrive(deposit, payer, 200_000n)] as const
  await settle()
  const [share] = await payouts()
  const signed = { state: "assigned" as const, wallet: payer, nonce: 0n }
  await db()
    .updateTable("payouts")
    .set(signed)
    .where("id", "=", share?.id ?? "")
    .execute()
  await comesFrom(sent[0], first)
  await comesFrom(sent[1], second)
  await settle()
  await settle()
  const open = await paymentsBy("amount")
  expect(open.filter(({ status }) => status === "open").map(({ payer, amount }) => [payer, amount])).toEqual([
    [second, 200_000n],
    [first, 800_000n],
  ])
  return open.filter(({ status }) => status === "open").map(row => row.id)
}

const paymentsBy = (column: "amount" | "payer") => db().selectFrom("payments").selectAll().orderBy(column).execute()

const waitForLock = (n = 1) =>
  until(`${n} connections wait for a lock`, async () => {
    const { rows } = await sql`select from pg_stat_activity
      where datname = current_database() and wait_event_type = 'Lock'`.execute(db())
    return rows.length === n
  })

it.runIf(onPostgres).each([
  ["the smaller", [0, 1]],
  ["the larger", [1, 0]],
])("a signed share counts once against two payments that are accepted at once, %s first", async (_which, order) => {
  const ids = await shared()
  const screened = new Map([first, second].map(address => [address, "clear" as const]))
  const [one, other] = order.map(i => ids[i] ?? "") as [string, string]
  let rival: Promise<void> | undefined
  await inTransaction(service.ctx, async tx => {
    await acceptPayment(tx, merchantId, one, screened)
    rival = inTransaction(service.ctx, tx => acceptPayment(tx, merchantId, other, screened))
    // It has read what is promised, and waits to write.
    await waitForLock()
  })
  await rival
  const live = (await payouts()).filter(row => row.state !== "cancelled")
  const sum = (share: number) =>
    live.filter(row => row.share === share).reduce((total, { amount }) => total + amount, 0n)
  expect([sum(0), sum(1)]).toEqual([700_000n, 300_000n])
  expect((await checkConsistency(service.ctx, chainId)).filter(({ words }) => !/signed/.test(words))).toEqual([])
})

it.runIf(onPostgres)(
  "a deadlock of settling several senders with the end of a share is retried, by whoever was rolled back",
  async () => {
    const retried: unknown[] = []
    const info = (facts: unknown, words: string) => void (words.includes("deadlocked") && retried.push(facts))
    const ctx = { ...service.ctx, log: Object.assign(Object.create(service.ctx.log), { info }) }
    let deposit = await sell()
    let sent: [Hash, Hash]
    let rows: Row<"payments">[]
    // Settling locks the first sender's payment first; the end of a share locks by id.
    do {
      deposit = await sell()
      sent = [await arrive(deposit, first, 1_000_000n), await arrive(deposit, second, 1_000_000n)]
      await settle()
      rows = (await paymentsBy("payer")).filter(row => row.resource_id === deposit.resource_id)
    } while ((rows[0]?.id ?? "") < (rows[1]?.id ?? ""))
    const [high, low] = rows.map(row => row.id) as [string, string]
    await comesFrom(sent[0], second)
    await comesFrom(sent[1], first)
    const working: Promise<unknown>[] = []
    await inTransaction(service.ctx, async tx => {
      await tx.db.selectFrom("payments").select("id").where("id", "=", low).forNoKeyUpdate().execute()
      // As `confirmPayouts` does where a share of one failed whose transfer the other one holds.
      const end = inTransaction(ctx, async tx => {
        await tx.db
          .selectFrom("payments")
          .select("id")
          .where("id", "in", [low, high])
          .orderBy("id")
          .forNoKeyUpdate()
          .execute()
        for (const id of [low, high]) await makePayouts(tx, id, { reason: "reverted" })
      })
      working.push(end)
      await waitForLock()
      working.push(settleDue(ctx, paperNetwork))
      await waitForLock(2)
    })
    await Promise.all(working)
    expect(retried).toEqual([{ tried: 1 }])
    await settle()
    const ended = (await paymentsBy("payer")).filter(row => row.resource_id === deposit.resource_id)
    const granted = ended.filter(({ status }) => status === "granted")
    expect(granted.map(row => [row.payer, row.amount])).toEqual([
      [first, 1_000_000n],
      [second, 1_000_000n],
    ])
    const live = (await payouts()).filter(row => row.deposit_id === deposit.id && row.state !== "cancelled")
    expect(live.map(row => row.amount).sort()).toEqual([300_000n, 300_000n, 700_000n, 700_000n])
    expect(await checkConsistency(service.ctx, chainId)).toEqual([])
  },
)
