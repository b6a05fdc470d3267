/**
 * A kind of payout that exists only in this test: a permit, which a payer signed and the relay wallet carries out. It has
 * a row in the table, and this file makes it. The lanes and the engine are as they are.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { hashTypedData } from "viem"
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest"
import { type PayoutRig, startPayoutRig } from "../../../test/payouts.ts"
import { relaysOn, type Signed, signAuthorization } from "../../../test/relays.ts"
import { relayCall, typedAuthorization } from "../../platform/chain/authorizations.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { marked } from "../../platform/chain/release-call.ts"
import { inTransaction } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import { type PayoutKind, type PayoutKindName, payoutKinds } from "../../platform/db/payout-kinds.ts"
import { relayRow, writeRelays } from "../relays/accept-relay.ts"
import { RELAY_GAS } from "../relays/try-relay.ts"
import { lockBudgets } from "./check-gas-budget.ts"

const table: Record<string, PayoutKind> = payoutKinds
/** It is no name of the table outside of this test. */
const PERMIT = "permit" as PayoutKindName
const permit: PayoutKind = {
  lane: "relay",
  moneyOf: "payer",
  waits: "payer",
  budget: "half",
  gasTimes: 1n,
  prepaid: "no",
  turn: "buyer",
  afterRevert: "ordinary",
}
const payTo = `0x${"9e".repeat(20)}` as Address
const AMOUNT = 5_000_000n

let rig: PayoutRig
let on: ReturnType<typeof relaysOn>
beforeAll(async () => {
  rig = await startPayoutRig()
  on = relaysOn(rig)
})
afterAll(() => rig?.stop())

/** The definitions of the constraints of `payouts` that name kinds. */
async function constraints(): Promise<Map<string, string>> {
  const { rows } = await sql<{ name: string; definition: string }>`
    select conname as name, pg_get_constraintdef(oid) as definition from pg_constraint
    where conrelid = 'payouts'::regclass and contype = 'c' and pg_get_constraintdef(oid) like '%kind%'`.execute(
    rig.service.ctx.db,
  )
  return new Map(rows.map(({ name, definition }) => [name, definition]))
}

/** The kinds that a definition lists first. */
const kindsIn = (definition = ""): string[] =>
  [...(/ARRAY\[([^\]]*)\]/.exec(definition)?.[1]?.matchAll(/'(\w+)'/g) ?? [])].map(match => match[1] ?? "")

it("the constraints of the database have the kinds and the lanes of the table", async () => {
  const named = await constraints()
  const kinds = Object.entries(table)
  expect(kindsIn(named.get("payouts_kind_check")).sort()).toEqual(kinds.map(([name]) => name).sort())
  const relays = kinds.flatMap(([name, { lane }]) => (lane === "relay" ? [name] : []))
  expect(kindsIn(named.get("payouts_lane")).sort()).toEqual(relays.sort())
})

it("the index of the turns has the classes of the table", async () => {
  const { ctx } = rig.service
  const { rows } = await sql<{ definition: string }>`
    select pg_get_indexdef('payouts_turns'::regclass) as definition`.execute(ctx.db)
  const buyers = kindsThat(({ turn }) => turn === "buyer").compile(ctx.db).sql
  expect(kindsIn(rows[0]?.definition)).toEqual(buyers.match(/\w+/g))
})

describe("a new kind", () => {
  beforeAll(async () => {
    const { db } = rig.service.ctx
    // Its migration: a permit is what a settlement is.
    const also = (text: string) => text.replaceAll(/(ARRAY\[[^\]]*'settle')(::text)?/g, "$1$2, 'permit'$2")
    for (const [name, definition] of await constraints())
      await sql`alter table payouts drop constraint ${sql.ref(name)}, add constraint ${sql.ref(name)} ${sql.raw(also(definition))}`.execute(
        db,
      )
    const lane = await sql<{ definition: string }>`
      select pg_get_functiondef('set_lane'::regproc) as definition`.execute(db)
    await sql.raw((lane.rows[0]?.definition ?? "").replace("'settle'", "'settle', 'permit'")).execute(db)
    table[PERMIT] = permit
  })
  afterAll(() => {
    delete table[PERMIT]
  })
  beforeEach(() => on.begin())

  /** Writes what a payer signed; returns its id. */
  async function write({ authorization, signature }: Signed): Promise<string> {
    const { ctx } = rig.service
    const { id: merchantId } = await ctx.db.selectFrom("merchants").select("id").executeTakeFirstOrThrow()
    const id = randomUUID()
    const facts = {
      kind: PERMIT as "settle",
      authorization,
      digest: hashTypedData(typedAuthorization(rig.network, authorization)) as Hash,
      relayBy: new Date(ctx.now().getTime() + 600_000),
      to: { merchantId },
    }
    const data = marked(relayCall(authorization, signature, "key"), id)
    const row = relayRow(ctx, rig.network, { id, data, gas: RELAY_GAS.key }, facts)
    expect((await inTransaction(ctx, ctx => writeRelays(ctx, [row]))).size).toBe(1)
    return id
  }
  const signed = async (holds: bigint) =>
    await signAuthorization(await on.buyer(holds), rig.network, { to: payTo, value: AMOUNT })

  it("is signed, sent and final, and moves its money once", async () => {
    const before = await rig.balanceOf(payTo)
    const id = await write(await signed(AMOUNT))
    await on.round()
    await rig.anvil.client.mine({ blocks: 3 })
    await on.round()
    const [made] = await on.relays()
    expect(made).toMatchObject({ id, kind: "permit", lane: "relay", state: "final", succeeded: true })
    expect((await rig.balanceOf(payTo)) - before).toBe(AMOUNT)
  })

  it("is cancelled at once with the reason where it would fail, because a payer waits for it", async () => {
    await write(await signed(AMOUNT - 1n))
    await on.round()
    expect(await on.relays()).toMatchObject([
      { state: "cancelled", held_detail: "The wallet holds 4.999999 of 5.00 USDC." },
    ])
  })

  it("uses half of its merchant's gas budget at most, because strangers cause it", async () => {
    const { ctx } = rig.service
    await write(await signed(AMOUNT))
    const [row] = await on.relays()
    if (!row) throw new Error("no permit")
    const limited = { ...ctx, settings: { ...ctx.settings, gasBudget: 1_000n } }
    await inTransaction(limited, async ctx => {
      const budgets = await lockBudgets(ctx, [row.merchant_id])
      expect(budgets.take(row, 501n)).toBe(false)
      expect(budgets.take(row, 500n)).toBe(true)
      expect(budgets.take({ ...row, kind: "refund" }, 500n)).toBe(true)
    })
  })
})
