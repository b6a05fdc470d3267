/**
 * Puts old unpaid checkouts away, and brings them back. Anyone with a link can open checkouts, so checkouts must not
 * stay as large rows forever. A put-away checkout is a small row, plus terms that many share. Together, the row and the
 * terms can recreate the same rows when someone requests the checkout or its address, or when money is found there.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"

const DAY_MS = 86_400_000
/**
 * How long after its end a checkout is put away. A checkout that anyone requested within the last day is not put away.
 */
const KEPT_MS = 30 * DAY_MS
/** How long after its end a checkout of a crowded link is put away. */
const KEPT_IN_CROWD_MS = DAY_MS
/** How many unpaid checkouts a link, or all of a merchant's links together, may have before they count as crowded. */
const MAX_OF_LINK = 10_000
const MAX_OF_MERCHANT = 200_000
/** The most refused submissions that are put away with their checkout. */
const MAX_SUBMISSIONS = 10
/** The SQLSTATE of an error: another row still refers to the row. */
export const REFERRED_TO = "23503"

/** Links, and merchants, with too many unpaid checkouts. */
export interface Crowds {
  links: readonly string[]
  merchants: readonly string[]
}

/** Returns these deposits' links and merchants that have too many unpaid checkouts. */
export async function crowdsAmong(
  ctx: TxContext,
  deposits: readonly bigint[],
  { ofLink = MAX_OF_LINK, ofMerchant = MAX_OF_MERCHANT } = {},
): Promise<Crowds> {
  const { rows } = await sql<{ link: string | null; merchant: string | null }>`
    with asked as (select s.link_id, s.merchant_id from deposits d join checkout_sessions s on s.id = d.resource_id
      where d.id = any(${sqlArray("bigint", deposits)}) and s.link_id is not null)
    select l.link_id as link, null as merchant from (select distinct link_id from asked) l
      where (select count(*) from (select from checkout_sessions s where s.link_id = l.link_id and s.status <> 'confirmed'
        limit ${ofLink + 1}) unpaid) > ${ofLink}
    union all
    select null, m.merchant_id from (select distinct merchant_id from asked) m
      where (select count(*) from (select from checkout_sessions s where s.merchant_id = m.merchant_id
        and s.status in ('pending', 'expired') limit ${ofMerchant + 1}) unpaid) > ${ofMerchant}`.execute(ctx.db)
  return { links: rows.flatMap(({ link }) => link ?? []), merchants: rows.flatMap(({ merchant }) => merchant ?? []) }
}

/**
 * SQL: whether a checkout `s` was opened from a link that, alone or with its merchant's other links, has too many
 * unpaid checkouts.
 */
export const isCrowded = ({ links, merchants }: Crowds) =>
  sql<boolean>`(s.link_id is not null and (s.link_id = any(${sqlArray("text", links)})
    or s.merchant_id = any(${sqlArray("text", merchants)})))`

/** SQL: whether another table has a row that keeps a checkout `s`, or its deposit `d`, from being put away. */
const isReferredTo = sql.join(
  [
    sql`exists (select from transfers r where r.deposit_id = d.id)`,
    sql`exists (select from deposit_books r where r.deposit_id = d.id)`,
    sql`exists (select from payouts r where r.deposit_id = d.id)`,
    sql`exists (select from outflows r where r.deposit_id = d.id)`,
    sql`exists (select from foreign_tokens r where r.deposit_id = d.id)`,
    sql`exists (select from payments r where r.resource_id = s.id)`,
    sql`exists (select from submissions r where r.resource_id = s.id and r.status <> 'failed')`,
    sql`(select count(*) from submissions r where r.resource_id = s.id) > ${MAX_SUBMISSIONS}`,
    sql`exists (select from settlements r where r.resource_id = s.id)`,
    sql`exists (select from return_addresses r where r.resource_id = s.id)`,
    sql`exists (select from invoices r where r.session_id = s.id)`,
  ],
  sql` or `,
)

/**
 * Puts away the given dormant deposits whose checkouts ended long ago, unpaid and untouched. Returns how many were put
 * away. Call this after a quorum has read that the deposits are empty. Deposits of an older factory stay, because their
 * rows can't be recreated.
 */
export async function putAway(ctx: Context, deposits: readonly bigint[], crowds: Crowds): Promise<number> {
  const now = ctx.now().getTime()
  const [dayAgo, crowdedBefore, before] = [DAY_MS, KEPT_IN_CROWD_MS, KEPT_MS].map(ms => new Date(now - ms))
  const due = sql`select d.id as deposit_id, s.id from deposits d join checkout_sessions s on s.id = d.resource_id
    where d.id = any(${sqlArray("bigint", deposits)}) and not d.watched and d.watched_until < ${dayAgo}
      and not d.older_factory
      and s.capture = 'direct' and s.status in ('expired', 'failed') and s.run_at is null and s.received = 0
      and s.exception is null and s.tx_hash is null and (s.expires_at < ${before}
        or (s.expires_at < ${crowdedBefore} and ${isCrowded(crowds)})) and not (${isReferredTo})`
  const { rows: some } = await sql`${due} limit 1`.execute(ctx.db)
  if (some.length === 0) return 0
  try {
    return await inTransaction(ctx, async ctx => {
      // Skips locked rows, because the transaction that holds a lock is about to write to the row.
      const { rows } = await sql<{ deposit_id: bigint; id: string }>`
        ${due} for no key update of s, d skip locked`.execute(ctx.db)
      await store(ctx, rows)
      return rows.length
    })
  } catch (error) {
    // A new row refers to one of the checkouts, for example because someone just submitted a hash. All of the checkouts
    // stay until their next check.
    if ((error as { code?: unknown }).code === REFERRED_TO) return 0
    throw error
  }
}

/**
 * Columns that differ between checkouts, or are set when a checkout comes back. `put_away_terms` stores all other
 * columns. A migration that adds a non-null column to one of these tables must also add the column to the JSON in
 * `put_away_terms`.
 */
const OF_SESSION = ["id", "merchant_id", "chain_id", "created_at", "expires_at", "updated_at", "traceparent"]
const OF_DEPOSIT = [
  "id",
  "merchant_id",
  "chain_id",
  "resource_id",
  "address",
  "salt",
  "open_after_s",
  "created_at",
  "watched",
  "watched_until",
  "watched_number",
  "dormant_since",
  "check_at",
  "balanced_number",
]

async function store(ctx: TxContext, rows: readonly { deposit_id: bigint; id: string }[]): Promise<void> {
  const among = sqlArray(
    "bigint",
    rows.map(row => row.deposit_id),
  )
  const shared = sql`select s.id, s.merchant_id, s.chain_id, s.created_at, s.expires_at, s.updated_at, s.link_id, s.product_id,
      d.recipient_set_id, d.address, d.salt, d.open_after_s, d.watched_number,
      (select jsonb_agg(to_jsonb(r) - 'id' order by r.id) from submissions r where r.resource_id = s.id) as submissions,
      to_jsonb(s) - ${sqlArray("text", OF_SESSION)} as session, to_jsonb(d) - ${sqlArray("text", OF_DEPOSIT)} as deposit
    from deposits d join checkout_sessions s on s.id = d.resource_id where d.id = any(${among})`
  const hash = sql`sha256(convert_to(g.session::text || g.deposit::text, 'utf8'))`
  await sql`insert into put_away_terms (merchant_id, link_id, product_id, recipient_set_id, session, deposit, hash)
    select distinct on (g.merchant_id, ${hash}) g.merchant_id, g.link_id, g.product_id, g.recipient_set_id, g.session, g.deposit, ${hash}
    from (${shared}) g
    -- A row that is there is locked: an erasure, which deletes terms that nobody uses, must not delete it before it is used.
    on conflict (merchant_id, hash) do update set hash = excluded.hash`.execute(ctx.db)
  const { numAffectedRows } =
    await sql`insert into put_away (id, merchant_id, chain_id, terms_id, address, salt, open_after_s, watched_number, created_at, expires_at, updated_at,
      check_at, submissions)
    select g.id, g.merchant_id, g.chain_id, t.id, decode(substr(g.address, 3), 'hex'), decode(substr(g.salt, 3), 'hex'), g.open_after_s,
      g.watched_number, g.created_at, g.expires_at, g.updated_at, ${nextCheck(ctx, sql`g.expires_at`)}, g.submissions
    from (${shared}) g join put_away_terms t on t.merchant_id = g.merchant_id and t.hash = ${hash}`.execute(ctx.db)
  // Otherwise the rows deleted below could never be recreated.
  if (numAffectedRows !== BigInt(rows.length)) throw new Error("Not every checkout was put away, so none is deleted")
  const ids = sqlArray(
    "text",
    rows.map(row => row.id),
  )
  await sql`delete from submissions where resource_id = any(${ids})`.execute(ctx.db)
  await sql`delete from deposits where id = any(${among})`.execute(ctx.db)
  await sql`delete from checkout_sessions where id = any(${ids})`.execute(ctx.db)
}

/**
 * SQL: when to read the balance of a checkout's address next: in a day, or in 30 days if the checkout ended over 30
 * days ago.
 */
export function nextCheck(ctx: TxContext, expiresAt: ReturnType<typeof sql>): ReturnType<typeof sql> {
  const now = ctx.now().getTime()
  const [before, inADay, inAMonth] = [-KEPT_MS, DAY_MS, KEPT_MS].map(ms => new Date(now + ms))
  return sql`case when ${expiresAt} > ${before} then ${inADay}::timestamptz else ${inAMonth}::timestamptz end`
}

/**
 * Brings back the checkouts with these ids or receiving addresses. Returns the ids of those that were put away. The
 * rows of these checkouts are the same as before, and their balances are due to be read.
 */
export async function bringBack(
  ctx: Context,
  { ids = [], addresses = [] }: { ids?: readonly string[]; addresses?: readonly Address[] },
): Promise<string[]> {
  const asked = sql`(p.id = any(${sqlArray("text", ids)}) or p.address = any(
    select decode(substr(address, 3), 'hex') from unnest(${sqlArray("text", addresses)}) address))`
  const { rows: found } = await sql<{ id: string }>`select p.id from put_away p where ${asked}`.execute(ctx.db)
  if (found.length === 0) return []
  return await inTransaction(ctx, ctx =>
    restore(
      ctx,
      found.map(row => row.id),
    ),
  )
}

async function restore(ctx: TxContext, ids: readonly string[]): Promise<string[]> {
  // Another process may bring back the same checkout concurrently, but only one of the processes deletes the row.
  const { rows } = await sql<{ id: string; row: string }>`
    delete from put_away where id = any(${sqlArray("text", ids)}) returning id, to_jsonb(put_away)::text as row`.execute(
    ctx.db,
  )
  const back = sql`(select p.*, t.session, t.deposit from unnest(${sqlArray(
    "text",
    rows.map(({ row }) => row),
  )}) line, jsonb_populate_record(null::put_away, line::jsonb) p join put_away_terms t on t.id = p.terms_id)`
  await sql`insert into checkout_sessions select r.* from ${back} b, jsonb_populate_record(null::checkout_sessions,
    b.session || jsonb_build_object('id', b.id, 'merchant_id', b.merchant_id, 'chain_id', b.chain_id,
      'created_at', b.created_at, 'expires_at', b.expires_at, 'updated_at', b.updated_at)) r`.execute(ctx.db)
  await sql`insert into submissions overriding system value
    select r.* from ${back} b, jsonb_array_elements(b.submissions) one, jsonb_populate_record(null::submissions,
      one || jsonb_build_object('id', nextval(pg_get_serial_sequence('submissions', 'id')))) r
    where b.submissions is not null`.execute(ctx.db)
  const now = ctx.now()
  const { rows: deposits } = await sql<{ id: bigint }>`insert into deposits overriding system value
    select r.* from ${back} b, jsonb_populate_record(null::deposits, b.deposit || jsonb_build_object(
      'id', nextval(pg_get_serial_sequence('deposits', 'id')), 'merchant_id', b.merchant_id, 'chain_id', b.chain_id,
      'resource_id', b.id, 'address', '0x' || encode(b.address, 'hex'), 'salt', '0x' || encode(b.salt, 'hex'),
      'open_after_s', b.open_after_s, 'created_at', b.created_at, 'watched', false, 'watched_until', ${now}::timestamptz,
      'watched_number', b.watched_number, 'dormant_since', ${now}::timestamptz, 'check_at', ${now}::timestamptz)) r
    returning id`.execute(ctx.db)
  // The database sets the newest block, because a new address is empty there. This address may hold money by now.
  await sql`update deposits set balanced_number = watched_number where id = any(${sqlArray(
    "bigint",
    deposits.map(({ id }) => id),
  )})`.execute(ctx.db)
  return rows.map(({ id }) => id)
}

/** Runs `work`. If `work` finds no checkout or address, brings back the put-away ones and runs `work` again. */
export async function withPutAway<T>(
  ctx: Context,
  what: { ids?: readonly string[]; addresses?: readonly Address[] },
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work()
  } catch (error) {
    if (!isNotFound(error)) throw error
    // Runs `work` again even if nothing came back, because another request may have brought the row back meanwhile.
    await bringBack(ctx, what)
    return await work()
  }
}

const isNotFound = (error: unknown): boolean =>
  error instanceof ApiError && ["SESSION_NOT_FOUND", "DEPOSIT_NOT_FOUND"].includes(error.code)
