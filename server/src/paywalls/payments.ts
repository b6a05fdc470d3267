/** What a buyer does at a paywall: submits a hash, and asks how it stands. */
import { sql } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import { type Context, inTransaction } from "../context.ts"
import type { Row, SubmissionStatus } from "../db/schema.ts"
import { ApiError } from "../errors.ts"
import { statusMessage } from "../payments/reasons.ts"

/** A submission wakes the verification at most so often. */
const WAKE_GAP_MS = 5_000

export async function publicPaywall(ctx: Context, id: string): Promise<Row<"paywalls">> {
  const row = await ctx.db.selectFrom("paywalls").selectAll().where("id", "=", id).executeTakeFirst()
  if (!row) throw new ApiError("PAYWALL_NOT_FOUND")
  return row
}

/**
 * Notes that `address` says it paid with `txHash`. Again the same while it is verified changes nothing; after a failure it
 * is looked at anew. `ALREADY_VERIFIED` when all that the transaction paid here has granted access.
 */
export async function submitPayment(ctx: Context, paywallId: string, txHash: Hash, address: Address): Promise<void> {
  const now = ctx.now()
  const { chain_id } = await publicPaywall(ctx, paywallId)
  const { token } = networkOf(ctx.chain, chain_id)
  await inTransaction(ctx, async ctx => {
    const paid = await sql<{ granted: boolean }>`
      select coalesce(p.status = 'granted', false) as granted
      from transfers t join deposits d on d.id = t.deposit_id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
      where d.paywall_id = ${paywallId} and t.tx_hash = ${txHash} and t.token = ${token.address}`.execute(ctx.db)
    if (paid.rows.length > 0 && paid.rows.every(row => row.granted)) throw new ApiError("ALREADY_VERIFIED")
    const fresh = {
      status: "verifying" as const,
      reason: null,
      message: statusMessage.verifying,
      attempts: 0,
      run_at: now,
      submitted_at: now,
      updated_at: now,
    }
    await ctx.db
      .insertInto("submissions")
      .values({ paywall_id: paywallId, chain_id, tx_hash: txHash, address, ...fresh })
      .onConflict(conflict =>
        conflict
          .columns(["paywall_id", "tx_hash", "address"])
          .doUpdateSet(fresh)
          .where("submissions.status", "in", ["failed", "reversed"]),
      )
      .execute()
    const gapMs = Math.min(WAKE_GAP_MS, ctx.settings.verifyIntervalMs)
    await sql`update cursors set run_at = least(run_at, greatest(${now}::timestamptz,
      coalesce(looked_at, ${now}::timestamptz) + make_interval(secs => ${gapMs / 1_000}))) where chain_id = ${chain_id}`.execute(
      ctx.db,
    )
  })
  await ctx.wakes.wake("verify")
}

export interface PaymentState {
  status: SubmissionStatus
  reason: string | null
  message: string
  confirmations: number
  requiredConfirmations: number
}

/** How a submission stands, or what became of a payment that nobody submitted; `PAYMENT_NOT_FOUND` for neither. */
export async function paymentState(
  ctx: Context,
  paywallId: string,
  txHash: Hash,
  address: Address,
): Promise<PaymentState> {
  const { chain_id } = await publicPaywall(ctx, paywallId)
  const { confirmations: required } = networkOf(ctx.chain, chain_id)
  const found = await sql<{
    submitted: SubmissionStatus | null
    reason: string | null
    message: string | null
    paid: "granted" | "reversed" | null
    block_number: bigint | null
    seen: boolean
    head: bigint
  }>`
    select s.status as submitted, s.reason, s.message, t.paid, coalesce(t.block_number, s.block_number) as block_number,
      t.tx_hash is not null as seen, c.block_number as head
    from cursors c
      left join submissions s on s.paywall_id = ${paywallId} and s.tx_hash = ${txHash} and s.address = ${address}
      left join lateral (
        select t.tx_hash, t.block_number, p.status as paid from transfers t join deposits d on d.id = t.deposit_id
          left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
        where d.paywall_id = ${paywallId} and t.tx_hash = ${txHash} and t.from_address = ${address}
        order by t.k limit 1) t on true
    where c.chain_id = ${chain_id}`.execute(ctx.db)
  const row = found.rows[0]
  const status = row?.submitted ?? row?.paid ?? (row?.seen ? "verifying" : undefined)
  if (!row || !status) throw new ApiError("PAYMENT_NOT_FOUND")
  const depth = row.block_number === null ? 0n : row.head - row.block_number + 1n
  return {
    status,
    reason: row.reason,
    message: row.message ?? statusMessage[status === "failed" ? "verifying" : status],
    confirmations: Number(depth < 0n ? 0n : depth),
    requiredConfirmations: Number(required),
  }
}

/** Waits until the payment is no longer `verifying`, for `waitMs` at most or until the caller has gone. */
export async function awaitPayment(
  ctx: Context,
  read: () => Promise<PaymentState>,
  waitMs: number,
  gone: AbortSignal,
): Promise<PaymentState> {
  const signal = AbortSignal.any([ctx.signal, gone])
  const wakes = ctx.wakes.subscribe("payments")
  const until = performance.now() + waitMs
  try {
    for (;;) {
      const state = await read()
      const leftMs = until - performance.now()
      if (state.status !== "verifying" || leftMs <= 0 || signal.aborted) return state
      await wakes.next(leftMs, signal)
    }
  } finally {
    wakes.close()
  }
}

/** The access that an address holds now, or undefined. */
export async function accessOf(ctx: Context, paywallId: string, address: Address) {
  const row = await ctx.db
    .selectFrom("access")
    .select(["expires_at", "tx_hash"])
    .where("paywall_id", "=", paywallId)
    .where("address", "=", address)
    .where("expires_at", ">", ctx.now())
    .executeTakeFirst()
  return row?.expires_at && row.tx_hash ? { expiresAt: row.expires_at, txHash: row.tx_hash } : undefined
}
