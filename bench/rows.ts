/**
 * Inserts the rows that a merchant has after many payments, by SQL in seconds instead of by days of paying: checkouts,
 * each with its deposit, transfer, claim, payment, sweep, event, delivery and attempt, an access to one paywall, and an
 * entry of the audit log. If a popular paywall is given, every second payment is one at this paywall, with its share
 * paid out of the paywall's one deposit, and every hundredth is of one payer.
 */
import { createHash } from "node:crypto"
import { sql } from "kysely"
import type { Db } from "../server/src/platform/db/open.ts"

/** The SQL of one row of each table; `n` counts the rows from 1. */
const tables: Record<string, string> = {
  resources: `(id, merchant_id, chain_id) select cs, mer, 84532`,
  checkout_sessions: `(id, merchant_id, chain_id, amount, currency, status, received, payer, tx_hash, confirmed_at, expires_at, created_at, updated_at,
      metadata, customer_email, product_id, link_id)
    select cs, mer, 84532, 5000000, 'USDC', 'confirmed', 5000000, payer, hash, at, at + interval '1 day', at, at,
      metadata, email, product, link`,
  // As the triggers write it, which do not run here.
  checkout_terms: `(merchant_id, value, key, created_at, session_id)
    select mer, (metadata_terms(metadata)).value, (metadata_terms(metadata)).key, at, cs`,
  deposits: `(id, chain_id, address, factory, salt, owner, open_after_s, created_at, watched, watched_until, watched_number, dormant_since, check_at,
      merchant_id, resource_id, approver, payees_hash)
    overriding system value
    select n, 84532, deposit, '0x${"fa".repeat(20)}', hash, '0x${"0a".repeat(20)}', 2000000000 + n, at, false, at, n, at, at + interval '10 years',
      mer, cs, '0x${"00".repeat(20)}', '0x${"00".repeat(32)}'`,
  transfers: `(id, chain_id, tx_hash, token, to_address, k, deposit_id, from_address, value, block_number, block_hash, log_index, block_time, state,
      created_at, merchant_id, applied)
    overriding system value
    select n, 84532, hash, token, deposit, 0, dep, payer, 5000000, n, hash, 0, at, 'final', at, mer, true`,
  payments: `(id, chain_id, payer, amount, tx_hash, status, created_at, updated_at, merchant_id, token, deposit_id, resource_id, notified_paid)
    select pay, 84532, payer, 5000000, hash, 'granted', at, at, mer, token, dep, res, true`,
  // As the triggers write it, which do not run here.
  transaction_terms: `(merchant_id, term, created_at, transaction_id)
    select mer, unnest(case when popular then '{}' else array_remove(array[md5('capture:direct')::uuid, md5('product:' || product)::uuid,
      md5('link:' || link)::uuid, md5('email:' || email)::uuid, field_term('order', metadata ->> 'order'), field_term('plan', metadata ->> 'plan'),
      field_term('cohort', metadata ->> 'cohort')], null) end), at, pay`,
  claims: `(transfer_id, payment_id) select n, pay`,
  claim_books: `(payment_id, claims, transfer_ids) select pay, 1, n`,
  deposit_books: `(deposit_id, token, inflow, committed) select n, token, 5000000, 5000000`,
  payouts: `(id, chain_id, kind, source_key, payment_id, share, percent_e4, deposit_id, merchant_id, token, recipient, amount, to_address, data, reserved, state, run_at, wallet, nonce,
      tx_hash, block_number, block_hash, succeeded, created_at, updated_at, gas_cost, gas_cost_at, mined_at)
    select uuid, 84532, case when popular then 'share' else 'sweep' end, 'source:' || n, case when popular then pay end, case when popular then 0 end,
      case when popular then 1000000 end, dep, mer, token, '0x${"0a".repeat(20)}', 5000000, '0x${"fa".repeat(20)}', '0x00', true, 'final', at, '0x${"0b".repeat(20)}', n,
      hash, n, hash, true, at, at, 1000, at, at`,
  events: `(id, merchant_id, type, dedupe_key, body, created_at)
    select evt, mer, 'checkout.session.completed', 'checkout.session.completed:' || cs, '{"id":"' || evt || '","event":"checkout.session.completed","createdAt":"2026-01-01T00:00:00.000Z","data":{}}', at`,
  deliveries: `(id, event_id, merchant_id, webhook_id, lane, order_key, status, attempts, run_at, created_at, updated_at)
    select dlv, evt, mer, webhook, webhook, cs, case n % 8 when 1 then 'failed' else 'delivered' end, 1, at, at, at`,
  delivery_attempts: `(delivery_id, started_at, duration_ms, status) select dlv, at, 20, 200`,
  access: `(paywall_id, address, expires_at, tx_hash, since_at) select sold, payer, null, hash, at`,
  grants: `(id, payment_id, paywall_id, address, tx_hash, granted_at) select grant_id, pay, sold, payer, hash, at`,
  submissions: `(resource_id, by_sender, chain_id, tx_hash, address, status, message, submitted_at, updated_at)
    select res, popular, 84532, hash, payer, 'granted', '', at, at`,
  transaction_attempts: `(payout_id, chain_id, wallet, nonce, n, raw, hash, gas, max_fee, tip, signed_at, sent_at, sends, last_result, created_at)
    select uuid, 84532, '0x${"0b".repeat(20)}', n, 1, '0x00', hash, 100000, 1, 1, at, at, 1, 'sent', at`,
  idempotency_keys: `(merchant_id, route, key, request_hash, status, answer, expires_at)
    select mer, 'POST /api/checkouts', 'key-' || n, substr(hash, 3), 201, '{}', now() + interval '1 day'`,
  audit_entries: `(merchant_id, at, actor_kind, actor_id, action, object_id, after, address, route, request_id)
    select mer, at, 'console', 'user-1', 'paywall.changed', paywall, '{"name":"Film"}', '127.0.0.1', 'PUT /api/console/paywalls/:id', 'req-' || n`,
}

/** Higher than the numbers of the rows that the routes created. */
const FIRST_ID = 1_000

export type Rows = keyof typeof tables
export const allTables = Object.keys(tables)

const digestOf = (n: number) => createHash("md5").update(`${n}`).digest("hex")
const payerOf = (digest: string) => `0x${digest.slice(0, 20)}${digest.slice(-20)}`
const first = digestOf(FIRST_ID + 1)
const second = digestOf(FIRST_ID + 2)
/** The payer of the first payment, who has access, and the checkout of it. */
export const firstPayer = payerOf(first)
export const firstSession = `cs_${first.slice(0, 24)}`
/** The first payment at the popular paywall. */
export const popularPayer = payerOf(second)
export const popularHash = `0x${second}${second}`

/** The owner of the rows. */
export interface Owner {
  merchantId: string
  paywallId: string
  webhookId: string
  /** The settlement token's address. */
  token: string
  /** A paywall with many payments, and its receiving address. */
  popular?: { paywallId: string; deposit: { id: bigint; address: string } }
  /**
   * What checkouts are found by: each has an e-mail address, an order number, a plan that half of them have, and a cohort of a hundredth; every second is of the
   * product, and the others of the link. Without it they have none of these.
   */
  searched?: { productId: string; linkId: string }
}

/** The payer of every fiftieth payment at the popular paywall. */
export const FREQUENT_PAYER = `0x${"fe".repeat(20)}`

/**
 * Adds the rows `from` to `to` to these tables, without triggers and foreign-key checks, and updates the statistics, as
 * autovacuum does. Indexes are built afterwards: row by row, a million would take minutes.
 */
export async function addRows(db: Db, owner: Owner, of: readonly Rows[], from: number, to: number): Promise<void> {
  const { merchantId, paywallId, webhookId, token, popular, searched } = owner
  const atPopular = (its: string, others: string) =>
    popular ? `case when popular then ${its} else ${others} end` : others
  const rows = `from (select n, popular, ${atPopular(`'${popular?.paywallId}'`, `'${paywallId}'`)} as sold,
      ${atPopular(`'${popular?.paywallId}'`, `'cs_' || left(digest, 24)`)} as res, ${atPopular(`${popular?.deposit.id}`, "n")} as dep,
      '${merchantId}' as mer, '${paywallId}' as paywall, '${webhookId}' as webhook, '${token}' as token,
      'cs_' || left(digest, 24) as cs, 'pay_' || left(digest, 24) as pay, 'evt_' || left(digest, 24) as evt, 'dlv_' || left(digest, 24) as dlv,
      'grant_' || left(digest, 24) as grant_id, digest::uuid as uuid, '0x' || digest || digest as hash,
      case when popular and n % 100 = 0 then '${FREQUENT_PAYER}' else '0x' || left(digest, 20) || right(digest, 20) end as payer, '0x' || right(digest, 20) || left(digest, 20) as deposit,
      ${searched ? "jsonb_build_object('order', n, 'plan', case n % 2 when 0 then 'pro' else 'basic' end, 'cohort', 'c' || n % 100)" : "null::jsonb"} as metadata,
      ${searched ? "'payer-' || n || '@mail.example'" : "null"} as email,
      ${searched ? `case n % 2 when 0 then '${searched.productId}' end` : "null"} as product,
      ${searched ? `case n % 2 when 1 then '${searched.linkId}' end` : "null"} as link,
      timestamptz '2026-01-01' + n * interval '1 second' as at
    from generate_series(${FIRST_ID + from}, ${FIRST_ID + to}) n,
      lateral (select md5(n::text) as digest, ${popular ? "n % 2 = 0" : "false"} as popular) d) row`
  const run = async (text: string) => void (await sql.raw(text).execute(db))
  const add = async (table: Rows) => {
    await db.transaction().execute(async tx => {
      for (const setting of [
        "session_replication_role = replica",
        "statement_timeout = 0",
        "maintenance_work_mem = '256MB'",
      ])
        await sql.raw(`set local ${setting}`).execute(tx)
      // Postgres does not write to an index that is not ready, and `reindex` makes it ready.
      await sql.raw(`update pg_index set indisready = false where indrelid = '${table}'::regclass`).execute(tx)
      const most = table === "access" ? `where payer <> '${FREQUENT_PAYER}'` : ""
      await sql.raw(`insert into ${table} ${tables[table]} ${rows} ${most}`).execute(tx)
      await sql.raw(`reindex table ${table}`).execute(tx)
      // Rows that the service adds get the numbers after these.
      await sql`select setval(pg_get_serial_sequence(${table}, column_name), ${FIRST_ID + to}) from information_schema.columns
        where table_schema = 'public' and table_name = ${table} and is_identity = 'YES'`.execute(tx)
    })
  }
  // Two at a time, as a machine has at least two cores.
  const waiting = [...of]
  const addNext = async () => {
    for (let table = waiting.shift(); table !== undefined; table = waiting.shift()) await add(table)
  }
  await Promise.all([addNext(), addNext()])
  // Not sooner: while another transaction is open, no page becomes visible to all, and no read is by an index alone.
  for (const table of of) await run(`vacuum analyze ${table}`)
  await run("checkpoint")
}
