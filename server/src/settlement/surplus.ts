/**
 * The surplus of an overpayment: what it brought beyond its price. It waits in its deposit until the merchant accepts it,
 * and then is paid out as the rest was, or returns it.
 */
import { sql } from "kysely"
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { parseAmount } from "../money/amount.ts"
import type { ClaimedTransfer } from "./sellable.ts"

/** The surplus of a payment, held until the transaction ends; undefined where it has none. */
export const holdSurplus = (ctx: TxContext, paymentId: string): Promise<Row<"surpluses"> | undefined> =>
  ctx.db.selectFrom("surpluses").selectAll().where("payment_id", "=", paymentId).forNoKeyUpdate().executeTakeFirst()

/**
 * Writes what the transfers of a granted payment bring beyond its price, in base units. It lies in the last transfer, without
 * which the price was not reached. What the merchant has decided stands. Less than the lowest price is left in the payment:
 * nobody should have to decide about dust. A payment that is not new and has none gets none. Call it once the transfers are
 * claimed, under the payment's lock.
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
  if (!holder || isDust || holder.token !== token.address) return await dropSurplus(ctx, payment.id)
  const facts = { transfer_id: holder.id, deposit_id: holder.deposit_id, token: holder.token, amount: beyond }
  await ctx.db
    .insertInto("surpluses")
    .values({ payment_id: payment.id, ...facts, state: "open" })
    .onConflict(conflict => conflict.column("payment_id").doUpdateSet(facts))
    .execute()
}

/** The payment as what would go back of it: its surplus, from the deposit that holds that. */
export const surplusAlone = (
  payment: Row<"payments">,
  { deposit_id, amount }: Pick<Row<"surpluses">, "deposit_id" | "amount">,
): Row<"payments"> => ({ ...payment, deposit_id, amount })

/** A payment as what would go back of it: all of it, or the surplus of a granted one that has one. */
export async function returnable(ctx: TxContext, payment: Row<"payments">): Promise<Row<"payments">> {
  if (payment.status !== "granted") return payment
  const surplus = await ctx.db
    .selectFrom("surpluses")
    .selectAll()
    .where("payment_id", "=", payment.id)
    .executeTakeFirst()
  return surplus ? surplusAlone(payment, surplus) : payment
}

/** Forgets a surplus that waits: the payment has none any more, or the merchant has decided about all of it. */
export async function dropSurplus(ctx: TxContext, paymentId: string): Promise<void> {
  await ctx.db.deleteFrom("surpluses").where("payment_id", "=", paymentId).where("state", "=", "open").execute()
}

/** Whether the transfer that holds a surplus still counts for its payment, from its payer, and is not in doubt. */
export async function surplusStands(ctx: TxContext, paymentId: string): Promise<boolean> {
  const { rows } = await sql`select from surpluses s join payments p on p.id = s.payment_id and p.status = 'granted'
      join claims c on c.transfer_id = s.transfer_id and c.payment_id = s.payment_id
      join transfers t on t.id = s.transfer_id
    where s.payment_id = ${paymentId} and t.state in ('confirmed', 'final') and t.suspect_at is null
      and t.from_address = p.payer and t.token = s.token and t.value >= s.amount`.execute(ctx.db)
  return rows.length > 0
}
