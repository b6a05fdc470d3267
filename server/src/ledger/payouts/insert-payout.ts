/** Writes payouts, and reserves the money for each in its deposit's book. */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Hex } from "viem"
import type { Address } from "../../platform/chain/hex.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { HeldReason, Row } from "../../platform/db/schema.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { NEVER, recheckMs } from "../txmanager/recheck.ts"

/** How many short payouts one round retries. */
const SHORT_PER_ROUND = 200

interface NewPayout {
  kind: "share" | "sweep" | "return"
  source_key: string
  payment_id: string | null
  share: number | null
  percent_e4: number | null
  replaces: string | null
  token: Address
  recipient: Address
  amount: bigint
  hold: HeldReason | undefined
  /** Why the payout is held until a person retries it. */
  parked?: string | undefined
  checks: number
  /** The trace of the payment that causes the payout. */
  traceparent: string | null
}

/**
 * Writes a payout and returns its id. The payout is held as `short` while the deposit's book has no room. `call`
 * returns the calldata for a payout id.
 */
export async function insertPayout(
  ctx: TxContext,
  deposit: Row<"deposits">,
  payout: NewPayout,
  call: (id: string) => Hex,
): Promise<string> {
  const { hold, parked, ...fields } = payout
  const reserved = await fits(ctx, { ...payout, deposit_id: deposit.id })
  const reason = hold ?? (reserved ? undefined : "short")
  const id = randomUUID()
  const now = ctx.now()
  await ctx.db
    .insertInto("payouts")
    .values({
      ...fields,
      id,
      chain_id: deposit.chain_id,
      deposit_id: deposit.id,
      to_address: deposit.factory,
      data: call(id),
      reserved,
      state: reason ? "held" : "queued",
      held_reason: reason ?? null,
      held_detail: parked ?? null,
      run_at: parked ? NEVER : reason ? new Date(now.getTime() + recheckMs(payout.checks)) : dueNow(now),
      created_at: now,
      updated_at: now,
    })
    .execute()
  return id
}

/**
 * Returns what a deposit holds and has not promised yet, and locks its book until the transaction ends. A return may
 * use all of this money. Any other payout must leave money that needs the merchant's decision.
 */
export async function roomIn(
  ctx: TxContext,
  depositId: bigint,
  token: Address,
  kind: NewPayout["kind"],
): Promise<bigint> {
  const book = await ctx.db
    .selectFrom("deposit_books")
    .modifyFront(sql`/* named: lock_book */`)
    .select(["inflow", "committed"])
    .where("deposit_id", "=", depositId)
    .where("token", "=", token)
    .forNoKeyUpdate()
    .executeTakeFirst()
  if (!book) return 0n
  if (kindOf({ kind }).hasApproval) return book.inflow - book.committed
  const { rows } = await sql<{ room: bigint }>`
    /* named: room_in */ select room_in(${depositId}, ${token})::numeric(78,0) as room`.execute(ctx.db)
  return rows[0]?.room ?? 0n
}

/**
 * Whether the money for a payout can be reserved: its deposit has room, and the money of the payout's own payment is
 * there.
 */
async function fits(
  ctx: TxContext,
  {
    deposit_id,
    token,
    kind,
    payment_id,
    amount,
  }: Pick<Row<"payouts">, "token" | "payment_id" | "amount"> & {
    deposit_id: bigint
    kind: NewPayout["kind"]
  },
): Promise<boolean> {
  if ((await roomIn(ctx, deposit_id, token, kind)) < amount) return false
  if (payment_id === null) return true
  const { rows } = await sql<{ fits: boolean }>`
    select own_room(${payment_id}, ${deposit_id}, ${token}) >= ${amount} as fits`.execute(ctx.db)
  return rows[0]?.fits ?? false
}

/**
 * Lets a book promise money that has already left its deposit. The book's inflow does not cover that money, so the
 * difference is the book's shortfall.
 */
export async function coverShortfall(
  ctx: TxContext,
  { deposit_id, token, amount }: Pick<Row<"payouts">, "deposit_id" | "token" | "amount">,
): Promise<void> {
  await sql`update deposit_books set shortfall = greatest(shortfall, committed + ${amount} - inflow)
    where deposit_id = ${deposit_id} and token = ${token}`.execute(ctx.db)
}

/** Reserves money for short payouts whose deposit's book now has room. */
export async function reserveShort(ctx: Context, chainId: number): Promise<void> {
  const due = await ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", chainId)
    .where("lane", "=", "payout")
    .where("state", "=", "held")
    .where("reserved", "=", false)
    .where("deposit_id", "is not", null)
    .where("run_at", "<=", ctx.now())
    .orderBy("created_at")
    .limit(SHORT_PER_ROUND)
    .execute()
  for (const { id } of due)
    await inTransaction(ctx, async ctx => {
      const row = await ctx.db
        .selectFrom("payouts")
        .selectAll()
        .where("id", "=", id)
        .where("state", "=", "held")
        .forNoKeyUpdate()
        .skipLocked()
        .executeTakeFirst()
      if (!row || row.reserved) return
      const hasRoom =
        row.deposit_id !== null &&
        (await fits(ctx, { ...row, deposit_id: row.deposit_id, kind: row.kind as NewPayout["kind"] }))
      const now = ctx.now()
      await ctx.db
        .updateTable("payouts")
        .set(
          hasRoom
            ? { reserved: true, state: "queued", held_reason: null, run_at: now, updated_at: now }
            : { checks: row.checks + 1, run_at: new Date(now.getTime() + recheckMs(row.checks + 1)) },
        )
        .where("id", "=", id)
        .execute()
    })
}
