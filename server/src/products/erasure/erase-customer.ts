/**
 * Erases a customer's personal data in one transaction. The audit log's entry about the erasure does not name the
 * customer.
 */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { newId } from "../../platform/ids.ts"
import type { Found } from "./find-customer.ts"
import { type Owner, personal } from "./personal-columns.ts"

/** SQL: for each owner, the condition that selects its rows in a table. */
const rowsOf: Record<Owner, (column: string, found: Found) => ReturnType<typeof sql>> = {
  checkout: (_, { checkouts }) => sql`id = any(${sqlArray("text", checkouts)})`,
  subscription: (_, { subscriptions }) => sql`id = any(${sqlArray("text", subscriptions)})`,
  refund: (_, { refunds }) => sql`id = any(${sqlArray("text", refunds)})`,
  grant: (_, { grants }) => sql`id = any(${sqlArray("text", grants)})`,
  event: (_, { events }) => sql`id = any(${sqlArray("text", events)}) and erased_at is null`,
  delivery: (table, { events }) =>
    table === "deliveries"
      ? sql`event_id = any(${sqlArray("text", events)})`
      : sql`delivery_id in (select d.id from deliveries d where d.event_id = any(${sqlArray("text", events)}))`,
  call: (table, { payments, payers }) =>
    table === "bundle_failures"
      ? sql`payment_id = any(${sqlArray("text", payments)})`
      : sql`payer = any(${sqlArray("text", payers)})`,
  receipt: (_, { payments, checkouts }) => sql`about = any(${sqlArray("text", payments)}) or about in (
    select i.id::text from payouts i where i.escrow_id = any(${sqlArray("text", checkouts)}))`,
  answer: (_, found) =>
    sql`answer like any(${sqlArray(
      "text",
      idsIn(found).map(id => `%${id}%`),
    )})`,
  entry: (_, found) => sql`object_id = any(${sqlArray("text", [...idsIn(found), ...found.grants])})`,
}

const idsIn = ({ checkouts, subscriptions, refunds, payments }: Found): string[] => [
  ...checkouts,
  ...subscriptions,
  ...refunds,
  ...payments,
]

/** Tables without a merchant column, whose rows belong to owners that have one. */
const WITHOUT_MERCHANT = ["delivery_attempts", "grants", "bundle_failures"]

/**
 * How many deliveries of these events are pending, and how many of those are being sent now, by the clock of the
 * leases. None of these deliveries changes until this transaction ends.
 */
export async function pendingDeliveries(
  ctx: TxContext,
  { events }: Found,
): Promise<{ pending: number; sending: number }> {
  const { rows } = await sql<{ pending: number; sending: number }>`
    select count(*)::int as pending, (count(*) filter (where lease_until > clock_timestamp()))::int as sending
    from (select lease_until from deliveries where event_id = any(${sqlArray("text", events)}) and status = 'pending'
      order by id for no key update) d`.execute(ctx.db)
  return rows[0] ?? { pending: 0, sending: 0 }
}

/** Erases all personal data that was found. Must be called in a transaction. Pending deliveries are not sent. */
export async function erase(
  ctx: TxContext,
  merchantId: string,
  found: Found,
  askedBy: "email" | "payer" | "checkout" | "retention",
): Promise<string> {
  const now = ctx.now()
  const { numUpdatedRows: dropped } = await ctx.db
    .updateTable("deliveries")
    .set({ status: "skipped", claim_id: null, lease_until: null, updated_at: now })
    .where(sql<boolean>`event_id = any(${sqlArray("text", found.events)}) and status = 'pending'`)
    .executeTakeFirst()
  const id = newId("era")
  await ctx.db
    .insertInto("erasures")
    .values({
      id,
      merchant_id: merchantId,
      asked_by: askedBy,
      checkouts: found.checkouts.length,
      subscriptions: found.subscriptions.length,
      refunds: found.refunds.length,
      events: found.events.length,
      deliveries_dropped: Number(dropped),
      created_at: now,
    })
    .execute()
  // For a checkout that an actor changes, the audit log would record the old values.
  await sql`select set_config('sluice.actor', '', true), set_config('sluice.erasing', 'on', true)`.execute(ctx.db)
  for (const [table, columns] of byTable()) {
    const [first] = columns
    if (!first) continue
    const sets = columns.map(({ column, becomes }) => sql`${sql.ref(column)} = ${sql.raw(becomes)}`)
    if (["checkout_sessions", "events"].includes(table)) sets.push(sql`erased_at = ${now}`)
    const ours = WITHOUT_MERCHANT.includes(table) ? sql`true` : sql`merchant_id = ${merchantId}`
    await sql`update ${sql.table(table)} set ${sql.join(sets)} where ${ours} and (${rowsOf[first.of](table, found)})`.execute(
      ctx.db,
    )
  }
  await sql`select set_config('sluice.erasing', '', true)`.execute(ctx.db)
  return id
}

/** The columns of {@link personal} by table. Their order matters, because an event's hash covers its body as sent. */
function byTable() {
  const tables = new Map<string, { column: string; becomes: string; of: Owner }[]>()
  for (const [name, { of, becomes }] of Object.entries(personal)) {
    const [table = "", column = ""] = name.split(".")
    tables.set(table, [...(tables.get(table) ?? []), { column, becomes, of }])
  }
  return tables
}
