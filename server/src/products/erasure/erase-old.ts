/** Erases the personal data in checkouts that are older than CUSTOMER_DATA_RETENTION, as far as nothing needs it any more. */
import { sql } from "kysely"
import { type Context, inTransaction } from "../../platform/context.ts"
import { erase, pendingDeliveries } from "./erase-customer.ts"
import { findCustomer, lockFound, stillNeeded } from "./find-customer.ts"

/** The rows are found by the index of each merchant's checkouts: a second of work for a million. */
const EVERY_MS = 3_600_000
const CHECKOUTS_PER_ROUND = 500

/** Erases what is due. Returns in how many milliseconds to do so again. */
export async function eraseOld(ctx: Context): Promise<number> {
  const { customerDataRetentionMs } = ctx.settings
  if (customerDataRetentionMs === undefined) return EVERY_MS
  const before = new Date(ctx.now().getTime() - customerDataRetentionMs)
  const { rows } = await sql<{ id: string; merchant_id: string }>`
    select s.id, s.merchant_id from merchants m cross join lateral (
      select id, merchant_id, created_at from checkout_sessions
      where merchant_id = m.id and created_at < ${before} and erased_at is null
        and status in ('confirmed', 'voided', 'partially_refunded', 'refunded', 'failed', 'expired')
        and (customer_email is not null or payer_info is not null or metadata is not null or description is not null)
      order by created_at limit ${CHECKOUTS_PER_ROUND}) s
    order by s.created_at limit ${CHECKOUTS_PER_ROUND}`.execute(ctx.db)
  let erased = 0
  for (const { id, merchant_id } of rows) {
    if (ctx.signal.aborted) break
    erased += await inTransaction(ctx, async ctx => {
      const customer = { checkout: id }
      await lockFound(ctx, await findCustomer(ctx, merchant_id, customer))
      const found = await findCustomer(ctx, merchant_id, customer)
      if ((await stillNeeded(ctx, found)).length > 0 || (await pendingDeliveries(ctx, found)).pending > 0) return 0
      await erase(ctx, merchant_id, found, "retention")
      return 1
    })
  }
  // What is still needed would otherwise be asked about without a pause.
  return erased === CHECKOUTS_PER_ROUND ? 0 : EVERY_MS
}
