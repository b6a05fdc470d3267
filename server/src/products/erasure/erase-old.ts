/** Erases personal data in checkouts older than CUSTOMER_DATA_RETENTION once nothing needs the data any more. */
import { sql } from "kysely"
import { type Context, inTransaction } from "../../platform/context.ts"
import { erase, pendingDeliveries } from "./erase-customer.ts"
import { bringBackFrom, findCustomer, lockFound, stillNeeded } from "./find-customer.ts"

/**
 * A round finds its rows through the index of each merchant's checkouts, which takes a second for a million
 * checkouts.
 */
const EVERY_MS = 3_600_000
const ROWS_PER_READ = 500

/** Erases all data that is due. Returns the milliseconds until the next round. */
export async function eraseOld(ctx: Context): Promise<number> {
  const { customerDataRetentionMs } = ctx.settings
  if (customerDataRetentionMs === undefined) return EVERY_MS
  const before = new Date(ctx.now().getTime() - customerDataRetentionMs)
  const { rows: merchants } = await sql<{ id: string }>`select id from merchants order by id`.execute(ctx.db)
  for (const { id } of merchants) {
    if (ctx.signal.aborted) break
    await bringBackOld(ctx, id, before)
    await eraseOldOf(ctx, id, before)
  }
  return EVERY_MS
}

/**
 * Restores old checkouts that were put away, so that their data is erased too. A link's checkouts contain no customer
 * data until someone answers.
 */
async function bringBackOld(ctx: Context, merchantId: string, before: Date): Promise<void> {
  const { rows } = await sql<{ id: string }>`
    select p.id from put_away_terms t join put_away p on p.terms_id = t.id
    where t.merchant_id = ${merchantId} and p.created_at < ${before} and (t.session ->> 'customer_email' is not null
      or t.session ->> 'payer_info' is not null or t.session ->> 'metadata' is not null)`.execute(ctx.db)
  for (let start = 0; start < rows.length; start += ROWS_PER_READ)
    await bringBackFrom(
      ctx,
      merchantId,
      rows.slice(start, start + ROWS_PER_READ).map(({ id }) => id),
    )
}

/** Erases a merchant's old data. Data that is still needed stays, and the next round checks it again. */
async function eraseOldOf(ctx: Context, merchantId: string, before: Date): Promise<void> {
  for (let last = { created_at: new Date(0), id: "" }; ; ) {
    const { rows } = await sql<typeof last>`
      select s.id, s.created_at from checkout_sessions s
      where s.merchant_id = ${merchantId} and s.created_at < ${before} and (s.created_at, s.id) > (${last.created_at}, ${last.id})
        and (s.erased_at is null or s.updated_at > s.erased_at)
        and s.status in ('confirmed', 'voided', 'partially_refunded', 'refunded', 'failed', 'expired')
        and (s.customer_email is not null or s.payer_info is not null or s.metadata is not null
          or s.description is not null and s.link_id is null and s.product_id is null)
        -- The usual reasons why it is still needed; the others are asked about one by one.
        and not exists (select from payments p where p.resource_id = s.id and p.status = 'open')
        and not exists (select from invoices i join subscriptions u on u.id = i.subscription_id
          where i.session_id = s.id and u.status <> 'canceled')
      order by s.created_at, s.id limit ${ROWS_PER_READ}`.execute(ctx.db)
    for (const { id } of rows) if (!ctx.signal.aborted) await eraseOne(ctx, merchantId, id, before)
    const end = rows.at(-1)
    if (!end || rows.length < ROWS_PER_READ || ctx.signal.aborted) return
    last = end
  }
}

const eraseOne = (ctx: Context, merchantId: string, checkout: string, oldBefore: Date): Promise<void> =>
  inTransaction(ctx, async ctx => {
    const customer = { checkout, oldBefore }
    await lockFound(ctx, await findCustomer(ctx, merchantId, customer))
    const found = await findCustomer(ctx, merchantId, customer)
    if ((await stillNeeded(ctx, found)).length > 0 || (await pendingDeliveries(ctx, found)).pending > 0) return
    await erase(ctx, merchantId, found, "retention")
  })
