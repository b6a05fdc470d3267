/**
 * The surplus of an overpayment: the amount beyond the price. The surplus stays in its deposit until the merchant
 * decides. An accepted surplus is paid out like the rest of the payment, and a returned one goes back.
 */
import { sql } from "kysely"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { columnsOf } from "../../platform/db/whole-rows.ts"
import { parseAmount } from "../../platform/money/amount.ts"
import type { ClaimedTransfer } from "./sellable.ts"

/** Locks and returns the surplus of a payment; undefined if the payment has none. */
export const holdSurplus = (ctx: TxContext, paymentId: string): Promise<Row<"surpluses"> | undefined> =>
  ctx.db
    .selectFrom("surpluses")
    .modifyFront(sql`/* named: hold_surplus */`)
    .select(columnsOf("surpluses"))
    .where("payment_id", "=", paymentId)
    .forNoKeyUpdate()
    .executeTakeFirst()

/**
 * Writes the surplus of a granted payment, `beyond` base units more than its price, once its transfers are claimed. The
 * surplus is in the last transfer, which was needed to reach the price. A surplus that the merchant has decided about
 * stays. A surplus below the lowest price stays in the payment, so that nobody has to decide about dust. A payment that
 * is not new gets no surplus if it had none. Call this under the payment's lock.
 */
export async function writeSurplus(
  ctx: TxContext,
  payment: Pick<Row<"payments">, "id" | "chain_id"> & { isNew: boolean },
  transfers: readonly ClaimedTransfer[],
  beyond: bigint,
): Promise<void> {
  const { token } = networkOf(ctx.chain, payment.chain_id)
  const known = await holdSurplus(ctx, payment.id)
  if (known ? known.state !== "open" : !payment.isNew) return
  const before = transfers.find(row => row.id === known?.transfer_id)
  const holder = [before, transfers.at(-1)].find(row => row !== undefined && row.value >= beyond)
  const isDust = beyond < parseAmount(ctx.settings.minAmount, token.decimals)
  if (!holder || isDust || holder.token !== token.address) {
    if (known) await dropSurplus(ctx, payment.id)
    return
  }
  const facts = { transfer_id: holder.id, deposit_id: holder.deposit_id, token: holder.token, amount: beyond }
  await ctx.db
    .insertInto("surpluses")
    .values({ payment_id: payment.id, ...facts, state: "open" })
    .onConflict(conflict => conflict.column("payment_id").doUpdateSet(facts))
    .execute()
}

/** Returns the payment with the amount and deposit of its surplus, so that only the surplus is returned. */
export const surplusAlone = (
  payment: Row<"payments">,
  { deposit_id, amount }: Pick<Row<"surpluses">, "deposit_id" | "amount">,
): Row<"payments"> => ({ ...payment, deposit_id, amount })

/** Returns what a return would send: the whole payment, or the surplus of a granted payment that has one. */
export async function returnable(ctx: TxContext, payment: Row<"payments">): Promise<Row<"payments">> {
  if (payment.status !== "granted") return payment
  const surplus = await ctx.db
    .selectFrom("surpluses")
    .selectAll()
    .where("payment_id", "=", payment.id)
    .executeTakeFirst()
  return surplus ? surplusAlone(payment, surplus) : payment
}

/**
 * Deletes an open surplus, because the payment no longer has one, or because the merchant has decided about all of it.
 */
export async function dropSurplus(ctx: TxContext, paymentId: string): Promise<void> {
  await ctx.db.deleteFrom("surpluses").where("payment_id", "=", paymentId).where("state", "=", "open").execute()
}

/**
 * Whether the transfer that holds a surplus is confirmed and not suspected, comes from the payer, and still counts for
 * its payment.
 */
export async function surplusStands(ctx: TxContext, paymentId: string): Promise<boolean> {
  const { rows } = await sql`select from surpluses s join payments p on p.id = s.payment_id and p.status = 'granted'
      join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
      join transfers t on t.id = s.transfer_id
    where s.payment_id = ${paymentId} and t.state in ('confirmed', 'final') and t.suspect_at is null
      and t.from_address = p.payer and t.token = s.token and t.value >= s.amount`.execute(ctx.db)
  return rows.length > 0
}
