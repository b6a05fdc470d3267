/** Finds all of a merchant's data about one customer, and what prevents the erasure of that data. */
import { type RawBuilder, sql } from "kysely"
import { bringBack, REFERRED_TO } from "../../ledger/deposits/put-away.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"

/**
 * The customer, identified in exactly one way. A checkout also identifies the other checkouts of its subscription.
 * With `oldBefore`, it does so only if that subscription is canceled and has no checkout from that time or later.
 */
export type Customer = { email: string } | { payer: Address } | { checkout: string; oldBefore?: Date }

/** The ids of everything that belongs to a customer. */
export interface Found {
  checkouts: string[]
  subscriptions: string[]
  refunds: string[]
  grants: string[]
  payments: string[]
  /** The wallets that paid. */
  payers: string[]
  events: string[]
}

/** Finds all data of the customer. */
export async function findCustomer(ctx: TxContext, merchantId: string, customer: Customer): Promise<Found> {
  const own =
    "email" in customer
      ? sql`(s.customer_email is not null and lower(s.customer_email) = lower(${customer.email}) or ${answered(sql`s.payer_info`, customer.email)})`
      : "payer" in customer
        ? sql`(s.payer = ${customer.payer}
            or s.id in (select p.resource_id from payments p where p.merchant_id = ${merchantId} and p.payer = ${customer.payer})
            or s.id in (select e.session_id from escrows e where e.merchant_id = ${merchantId} and e.payer = ${customer.payer}))`
        : sql`s.id = ${customer.checkout}`
  const subscribed =
    "email" in customer
      ? sql`u.id = any(array(
          select u.id from subscriptions u where u.merchant_id = ${merchantId} and u.customer_email is not null
            and u.started_at is not null and lower(u.customer_email) = lower(${customer.email})
          union select i.subscription_id from invoices i join checkout_sessions s on s.id = i.session_id
            where s.merchant_id = ${merchantId} and s.customer_email is not null and lower(s.customer_email) = lower(${customer.email})))`
      : "payer" in customer
        ? sql`u.payer = ${customer.payer}`
        : sql`u.id in (select subscription_id from invoices where session_id = ${customer.checkout}) and ${
            customer.oldBefore === undefined
              ? sql`true`
              : sql`u.status = 'canceled' and not exists (select from invoices i join checkout_sessions s on s.id = i.session_id
                  where i.subscription_id = u.id and s.created_at >= ${customer.oldBefore})`
          }`
  const { rows: subscriptions } = await sql<{ id: string }>`
    select u.id from subscriptions u where u.merchant_id = ${merchantId} and ${subscribed}`.execute(ctx.db)
  const ofSubscriptions = sqlArray("text", subscriptions.map(idOf))
  const { rows: checkouts } = await sql<{ id: string }>`
    select s.id from checkout_sessions s where s.merchant_id = ${merchantId} and ${own}
    union select i.session_id from invoices i where i.subscription_id = any(${ofSubscriptions}) and i.session_id is not null`.execute(
    ctx.db,
  )
  const ofCheckouts = sqlArray("text", checkouts.map(idOf))
  const byPayer = "payer" in customer ? sql`or p.payer = ${customer.payer}` : sql``
  const { rows: payments } = await sql<{ id: string; payer: string }>`
    select p.id, p.payer from payments p where p.merchant_id = ${merchantId} and (p.resource_id = any(${ofCheckouts}) ${byPayer})`.execute(
    ctx.db,
  )
  const ofPayments = sqlArray("text", payments.map(idOf))
  const { rows: refunds } = await sql<{ id: string }>`
    select r.id from refunds r where r.session_id = any(${ofCheckouts})`.execute(ctx.db)
  const { rows: grants } = await sql<{ id: string }>`
    select g.id from grants g where g.payment_id = any(${ofPayments})`.execute(ctx.db)
  const about = sqlArray("text", [...checkouts, ...subscriptions, ...payments].map(idOf))
  const ofVersionsBefore =
    "checkout" in customer && customer.oldBefore !== undefined
      ? sql``
      : sql`union select e.id from events e where e.merchant_id = ${merchantId} and e.order_key is null
          and e.body like any(${sqlArray(
            "text",
            [...checkouts, ...subscriptions, ...payments].map(({ id }) => `%${id}%`),
          )})`
  const { rows: events } = await sql<{ id: string }>`
    select e.id from events e where e.merchant_id = ${merchantId} and e.order_key = any(${about})
    union select d.event_id from deliveries d where d.merchant_id = ${merchantId} and d.order_key = any(${about})
    ${ofVersionsBefore}`.execute(ctx.db)
  return {
    checkouts: checkouts.map(idOf),
    subscriptions: subscriptions.map(idOf),
    refunds: refunds.map(idOf),
    grants: grants.map(idOf),
    payments: payments.map(idOf),
    payers: [...new Set([...payments.map(({ payer }) => payer), ...("payer" in customer ? [customer.payer] : [])])],
    events: events.map(idOf),
  }
}

const idOf = ({ id }: { id: string }): string => id

/** Locks the rows until this transaction ends. A payment that arrives in the meantime is settled afterwards. */
export async function lockFound(ctx: TxContext, { checkouts, subscriptions, payments }: Found): Promise<void> {
  await sql`select id from subscriptions where id = any(${sqlArray("text", subscriptions)}) order by id for no key update`.execute(
    ctx.db,
  )
  await sql`select id from checkout_sessions where id = any(${sqlArray("text", checkouts)}) order by id for no key update`.execute(
    ctx.db,
  )
  await sql`select id from payments where id = any(${sqlArray("text", payments)}) order by id for no key update`.execute(
    ctx.db,
  )
}

/**
 * SQL: whether one of the answers in `info` is this address. All answers are searched, because the merchant names the
 * fields.
 */
const answered = (info: RawBuilder<unknown>, email: string): RawBuilder<unknown> =>
  sql`exists (select from jsonb_each_text(case when jsonb_typeof(${info}) = 'object' then ${info} end) a
    where lower(a.value) = lower(${email}))`

/** Returns the ids of the customer's checkouts that were put away. A paid checkout is never among them. */
export async function putAwayOf(ctx: TxContext, merchantId: string, customer: Customer): Promise<string[]> {
  if ("payer" in customer) return []
  const which =
    "checkout" in customer
      ? sql`p.id = ${customer.checkout}`
      : sql`(lower(t.session ->> 'customer_email') = lower(${customer.email})
          or ${answered(sql`t.session -> 'payer_info'`, customer.email)})`
  const { rows } = await sql<{ id: string }>`
    select p.id from put_away p join put_away_terms t on t.id = p.terms_id where p.merchant_id = ${merchantId} and ${which}`.execute(
    ctx.db,
  )
  return rows.map(idOf)
}

const MAX_TRIES = 5

/**
 * Restores these checkouts, because the terms that they share contain customer data, and deletes terms that no
 * checkout shares.
 */
export async function bringBackFrom(ctx: Context, merchantId: string, ids: readonly string[]): Promise<void> {
  if (ids.length > 0) await bringBack(ctx, { ids })
  for (let tries = 1; ; tries++)
    try {
      await sql`delete from put_away_terms t where t.merchant_id = ${merchantId}
        and not exists (select from put_away p where p.terms_id = t.id)`.execute(ctx.db)
      return
    } catch (error) {
      // A checkout that uses some of these terms was put away at this moment.
      if ((error as { code?: unknown }).code !== REFERRED_TO || tries === MAX_TRIES) throw error
    }
}

/** Returns why this customer's data is still needed, in sentences; empty if it is not needed. */
export async function stillNeeded(ctx: TxContext, found: Found): Promise<string[]> {
  const checkouts = sqlArray("text", found.checkouts)
  const subscriptions = sqlArray("text", found.subscriptions)
  const payments = sqlArray("text", found.payments)
  const { rows } = await sql<Record<keyof typeof reasons, number>>`select
    (select count(*) from checkout_sessions where id = any(${checkouts}) and status in ('pending', 'verifying'))::int as unpaid,
    (select count(*) from checkout_sessions where id = any(${checkouts}) and status = 'authorized')::int as held,
    (select count(*) from payments where id = any(${payments}) and status = 'open' and exception is distinct from 'sanctioned')::int as open,
    (select count(*) from payments where id = any(${payments}) and status = 'open' and exception = 'sanctioned')::int
      + (select count(*) from payouts where payment_id = any(${payments}) and state = 'held' and held_reason = 'sanctions')::int as sanctions,
    (select count(*) from surpluses where payment_id = any(${payments}) and state = 'open')::int as surplus,
    (select count(*) from payouts where payment_id = any(${payments}) and kind = 'return' and state in ('queued', 'held', 'assigned', 'mined'))::int
      + (select count(*) from refunds where id = any(${sqlArray("text", found.refunds)}) and status = 'pending')::int as refund,
    (select count(*) from subscriptions where id = any(${subscriptions}) and status <> 'canceled')::int as subscription`.execute(
    ctx.db,
  )
  const counts = rows[0]
  return Object.entries(reasons).flatMap(([name, [one, many]]) => {
    const n = counts?.[name as keyof typeof reasons] ?? 0
    return n === 0 ? [] : [n === 1 ? one : many.replace("N", `${n}`)]
  })
}

const reasons = {
  unpaid: ["A checkout can still be paid.", "N checkouts can still be paid."],
  held: ["A checkout is held in escrow: capture or void it.", "N checkouts are held in escrow: capture or void them."],
  open: [
    "A payment is waiting for your decision: accept or return it.",
    "N payments wait for your decision: accept or return them.",
  ],
  sanctions: ["A payment is held because of a sanctions list.", "N payments are held because of a sanctions list."],
  surplus: [
    "An overpayment is waiting for your decision: accept or return it.",
    "N overpayments wait for your decision: accept or return them.",
  ],
  refund: ["A refund is not final yet.", "N refunds are not final yet."],
  subscription: ["A subscription is active: cancel it first.", "N subscriptions are active: cancel them first."],
} as const satisfies Record<string, readonly [one: string, many: string]>
