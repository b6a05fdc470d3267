/** Finds what needs a merchant's attention now, and the first steps of a new merchant. */
import { type RawBuilder, sql } from "kysely"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { payoutIdOf } from "../../platform/ids.ts"

/** How many rows of a kind are counted at most, and how many ids are listed. */
const MOST = 1_000
const NAMED = 5

type Kind = "payments" | "surpluses" | "refunds" | "payouts" | "webhooks" | "payoutAddresses" | "subscriptions"

/** Returns what needs the merchant now: the number of each kind, and the newest ids. */
export async function attentionOf(ctx: TxContext, merchantId: string) {
  const parts = Object.entries(waitingFor(merchantId)).map(
    ([
      kind,
      rows,
    ]) => sql`select ${sql.lit(kind)} as kind, (select count(*)::int from (${rows} limit ${sql.lit(MOST)}) w) as count,
      array(select id from (${rows}) w(id, at) order by at desc, id desc limit ${sql.lit(NAMED)}) as ids`,
  )
  const { rows } = await sql<{ kind: Kind; count: number; ids: string[] }>`/* named: attention */
    ${sql.join(parts, sql` union all `)}`.execute(ctx.db)
  const found = new Map(rows.map(({ kind, count, ids }) => [kind, { count, ids }]))
  const of = (kind: Kind, idOf = (id: string) => id) => {
    const { count = 0, ids = [] } = found.get(kind) ?? {}
    return { count, ids: ids.map(idOf) }
  }
  return {
    payments: of("payments"),
    surpluses: of("surpluses"),
    refunds: of("refunds"),
    payouts: of("payouts", payoutIdOf),
    webhooks: of("webhooks"),
    payoutAddresses: of("payoutAddresses", id => networkOf(ctx.chain, Number(id)).name),
    subscriptions: of("subscriptions"),
  }
}

/** SQL: the ids and times of each kind's rows. */
const waitingFor = (merchantId: string): Record<Kind, RawBuilder<unknown>> => ({
  payments: sql`select id, created_at from payments where merchant_id = ${merchantId} and status = 'open'`,
  // Few surpluses are open, so they are read first.
  surpluses: sql`select p.id, p.created_at from surpluses s join payments p on p.id = s.payment_id
    where s.state = 'open' and p.merchant_id = ${merchantId} and p.status = 'granted'`,
  refunds: sql`select r.id, r.created_at from payouts i join refunds r on r.payout_id = i.id
    where i.merchant_id = ${merchantId} and i.state = 'held' and i.kind = 'refund'`,
  payouts: sql`select id::text, created_at from payouts
    where merchant_id = ${merchantId} and state = 'held' and lane = 'payout' and kind <> 'anchor'`,
  webhooks: sql`select id, created_at from webhooks where merchant_id = ${merchantId} and deleted_at is null
    and (failing_since is not null and active or disabled_reason is not null)`,
  payoutAddresses: sql`select chain_id::text, pending_at from payout_addresses
    where merchant_id = ${merchantId} and pending_at is not null`,
  subscriptions: sql`select id, started_at from subscriptions
    where merchant_id = ${merchantId} and status = 'past_due'`,
})

/** Returns the first steps, in order, of a merchant who was never paid. */
export async function checklistOf(ctx: TxContext, merchantId: string) {
  const has = (table: string) => sql`exists (select from ${sql.table(table)} where merchant_id = ${merchantId})`
  const forSale = ["paywalls", "products", "payment_links", "bundles", "checkout_sessions"].map(has)
  const { rows } = await sql<{ address: boolean; sale: boolean; webhook: boolean }>`/* named: checklist */
    select ${has("payout_addresses")} as address, ${sql.join(forSale, sql` or `)} as sale,
      exists (select from webhooks where merchant_id = ${merchantId} and deleted_at is null and pulled_at is null) as webhook`.execute(
    ctx.db,
  )
  const { address = false, sale = false, webhook = false } = rows[0] ?? {}
  return [
    { step: "payout_address" as const, done: address, url: "/console/settings" },
    { step: "for_sale" as const, done: sale, url: "/console/links" },
    { step: "first_payment" as const, done: false, url: "/console/payments" },
    // Last, as selling by links needs no server.
    { step: "webhook" as const, done: webhook, url: "/console/webhooks" },
  ]
}
