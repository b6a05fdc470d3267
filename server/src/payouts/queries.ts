/** What became of a payment's shares: for the console, and for whoever tells the merchant. */
import { sql } from "kysely"
import { type Address, checksummed, type Hash } from "../chain/hex.ts"
import type { Context, TxContext } from "../context.ts"
import type { HeldReason, IntentState } from "../db/payout-rows.ts"
import { amountTeller, type ToldAmount } from "../scanner/tokens.ts"
import { percentOf } from "../splits/split.ts"

/** A disbursement as `checkout.session.completed` lists it. */
export interface Share {
  address: string
  amount: string
  percent: number
  /** Null until it is mined, and where it failed. */
  txHash: Hash | null
}

interface ShareRow {
  chain_id: number
  token: Address
  recipient: Address
  amount: bigint
  percent_e4: number
  state: IntentState
  held_reason: HeldReason | null
  succeeded: boolean | null
  tx_hash: Hash | null
  updated_at: Date
}

/**
 * The disbursements of a payment in the order of its recipients; empty without a split. What was cancelled with its
 * payment, or failed and has a successor, is left out.
 */
export async function sharesOf(ctx: TxContext, paymentId: string): Promise<Share[]> {
  const rows = await shareRows(ctx, paymentId)
  const tell = await amountTeller(ctx, rows)
  return rows.map(row => shareOf(row, tell(row)))
}

/** The same with how each stands, for the console. */
export async function sharesWithStates(ctx: Context, paymentId: string) {
  const rows = await shareRows(ctx, paymentId)
  const tell = await amountTeller(ctx, rows)
  return rows.map(row => ({
    ...shareOf(row, tell(row)),
    state: row.state,
    heldReason: row.held_reason,
    updatedAt: row.updated_at.toISOString(),
  }))
}

/**
 * Whether every share of a payment is mined, held or reverted, so that there is nothing worth waiting for; true without a
 * split.
 */
export const sharesSettled = async (ctx: TxContext, paymentId: string): Promise<boolean> =>
  (await shareRows(ctx, paymentId)).every(({ state }) => state !== "queued" && state !== "assigned")

async function shareRows(ctx: TxContext, paymentId: string): Promise<ShareRow[]> {
  const { rows } = await sql<ShareRow>`
    select * from intents i where payment_id = ${paymentId} and kind = 'share' and (state <> 'cancelled' or stopped)
      and not exists (select from intents later where later.replaces = i.id and later.state <> 'cancelled')
    order by share, created_at, deposit_id`.execute(ctx.db)
  return rows
}

const shareOf = (row: ShareRow, { amount }: ToldAmount): Share => ({
  address: checksummed(row.recipient),
  amount,
  percent: percentOf(row.percent_e4),
  txHash: row.succeeded ? row.tx_hash : null,
})
