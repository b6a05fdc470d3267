/** Reads the states of a payment's shares, for the console and for events to the merchant. */
import { sql } from "kysely"
import { amountFormatter, type FormattedAmount } from "../../platform/chain/format-amounts.ts"
import { type Address, checksummed, type Hash } from "../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import type { HeldReason, PayoutState } from "../../platform/db/schema.ts"
import { percentOf } from "../../platform/money/percent.ts"
import type { Share } from "./share.ts"

interface ShareRow {
  chain_id: number
  token: Address
  recipient: Address
  amount: bigint
  percent_e4: number
  state: PayoutState
  held_reason: HeldReason | null
  succeeded: boolean | null
  tx_hash: Hash | null
  updated_at: Date
}

/**
 * Returns a payment's shares in the order of its recipients; the list is empty without a split. Leaves out shares that
 * were cancelled with the payment, or that failed and were replaced.
 */
export async function sharesOf(ctx: TxContext, paymentId: string): Promise<Share[]> {
  const rows = await shareRows(ctx, paymentId)
  const format = await amountFormatter(ctx, rows)
  return rows.map(row => shareOf(row, format(row)))
}

/** Returns a payment's shares as {@link sharesOf} does, with their states, for the console. */
export async function sharesWithStates(ctx: Context, paymentId: string) {
  const rows = await shareRows(ctx, paymentId)
  const format = await amountFormatter(ctx, rows)
  return rows.map(row => ({
    ...shareOf(row, format(row)),
    state: row.state,
    heldReason: row.held_reason,
    updatedAt: row.updated_at.toISOString(),
  }))
}

/** Whether any of a payment's money is at an address that names the recipients of a split. */
export async function isSplit(ctx: TxContext, paymentId: string): Promise<boolean> {
  const { rows } = await sql`/* named: is_split */ select from claims c join transfers t on t.id = c.transfer_id
      join deposits d on d.id = t.deposit_id
    where c.payment_id = ${paymentId} and t.state <> 'gone' and d.recipient_set_id is not null limit 1`.execute(ctx.db)
  return rows.length > 0
}

/**
 * Whether none of a payment's shares is queued or assigned, so that waiting longer changes nothing. True without a
 * split.
 */
export const sharesSettled = async (ctx: TxContext, paymentId: string): Promise<boolean> =>
  (await shareRows(ctx, paymentId)).every(({ state }) => state !== "queued" && state !== "assigned")

async function shareRows(ctx: TxContext, paymentId: string): Promise<ShareRow[]> {
  const { rows } = await sql<ShareRow>`
    select * from payouts i where payment_id = ${paymentId} and kind = 'share' and (state <> 'cancelled' or stopped)
      and not exists (select from payouts later where later.replaces = i.id and later.state <> 'cancelled')
    order by share, created_at, deposit_id`.execute(ctx.db)
  return rows
}

const shareOf = (row: ShareRow, { amount }: FormattedAmount): Share => ({
  address: checksummed(row.recipient),
  amount,
  percent: percentOf(row.percent_e4),
  txHash: row.succeeded ? row.tx_hash : null,
})
