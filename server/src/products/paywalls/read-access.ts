/**
 * Reads which address has access to a paywall, and until when. An address's grants fold into one row, which also
 * serves as their lock. If the paywall names a product, a subscription to that product also gives access; each
 * request reads it.
 */
import { type RawBuilder, sql } from "kysely"
import { watchEnds } from "../../ledger/deposits/make-deposits.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { gatherRows } from "../../platform/db/gather.ts"
import type { Db } from "../../platform/db/open.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { type Access, accessChanged } from "./cache-access.ts"
import { type Fold, foldGrants } from "./grant.ts"

/** The fold of the grants up to `foldedAt`. It is valid until one of these grants changes. */
export interface Folded extends Fold {
  foldedAt: Date
  txHash: Hash | null
}

/**
 * Locks the grants of (paywall, address) until the transaction ends. Returns their fold, or undefined if all grants
 * must be folded again.
 */
export async function lockAccess(ctx: TxContext, paywallId: string, address: Address): Promise<Folded | undefined> {
  // An update locks the existing row even without a change; an insert locks the new one.
  const row = await ctx.db
    .insertInto("access")
    .values({ paywall_id: paywallId, address })
    .onConflict(conflict => conflict.columns(["paywall_id", "address"]).doUpdateSet({ address }))
    .returning(foldColumns)
    .modifyEnd(sql`/* named: lock_access */`)
    .executeTakeFirstOrThrow()
  return foldedOf(row)
}

const foldColumns = [
  "since_at",
  "expires_at",
  "calls_left",
  "tx_hash",
  "folded_at",
  "free_until",
  "calls_kept",
] satisfies (keyof Row<"access">)[]

function foldedOf(row: Pick<Row<"access">, (typeof foldColumns)[number]>): Folded | undefined {
  const { since_at: since, expires_at: expiresAt, calls_left: callsLeft, folded_at: foldedAt } = row
  if (foldedAt === null || row.calls_kept === null) return undefined
  // While calls are counted, each call lowers only `calls_left`, so `calls_kept` is out of date.
  const callsKept = callsLeft ?? row.calls_kept
  return { since, expiresAt, callsLeft, callsKept, freeUntil: row.free_until, foldedAt, txHash: row.tx_hash }
}

/**
 * Folds the live grants again. Must be called under {@link lockAccess} after every change to them. If `granted` new
 * grants are the only change since `before`, only those are read, because a payer per call has thousands.
 */
export async function foldAccess(
  ctx: TxContext,
  paywallId: string,
  address: Address,
  { before, granted }: { before?: Folded | undefined; granted: number } = { granted: 0 },
): Promise<void> {
  const newer =
    before &&
    (await liveGrants(ctx, paywallId, address)
      .modifyFront(sql`/* named: newer_grants */`)
      .where("granted_at", ">", before.foldedAt)
      .execute())
  // If another process's clock dated a new grant before `foldedAt`, the counts differ, and all grants are folded.
  const base = newer?.length === granted ? before : undefined
  const grants = base && newer ? newer : await liveGrants(ctx, paywallId, address).execute()
  const { since, expiresAt, callsLeft, callsKept, freeUntil } = foldGrants(grants, ctx.now(), base)
  const last = grants.at(-1) ?? (base && { grantedAt: base.foldedAt, txHash: base.txHash })
  await ctx.db
    .updateTable("access")
    .set({ since_at: since, expires_at: expiresAt, calls_left: callsLeft, tx_hash: last?.txHash ?? null })
    .set({ folded_at: last?.grantedAt ?? null, free_until: freeUntil, calls_kept: last ? callsKept : null })
    .where("paywall_id", "=", paywallId)
    .where("address", "=", address)
    .modifyEnd(sql`/* named: fold_access */`)
    .execute()
  accessChanged(ctx, paywallId, address)
}

/** What {@link readAccess} found for one paywall and address. */
export interface FoundAccess {
  paywall: Opened
  /** The access by grants, without subscriptions. */
  access: Access | undefined
  /** Whether the watch of the paywall's receiving address ends soon. */
  isWatchEnding: boolean
}

/** The key of {@link readAccess} for one paywall and address. An address always has 42 characters. */
export const accessName = (paywallId: string, address: Address): string => `${paywallId} ${address}`

/**
 * Reads the access that grants give to addresses, keyed by {@link accessName}, in one statement. An unknown paywall
 * has no entry. Subscriptions are not included: see {@link accessOf}.
 */
export async function readAccess(ctx: TxContext, names: readonly string[]): Promise<Map<string, FoundAccess>> {
  const ids = names.map(name => name.slice(0, -43))
  const addresses = names.map(name => name.slice(-42))
  const now = ctx.now()
  const { rows } = await sql<
    Opened & { name: string; expires_at: Date | null; tx_hash: Hash | null; is_watch_ending: boolean }
  >`/* named: read_access */
    select p.id || ' ' || asked.address as name, p.id, p.merchant_id, p.chain_id, p.subscription_product_id, a.expires_at, a.tx_hash,
      exists (select from deposits d where d.resource_id = p.id and ${watchEnds(now)}) as is_watch_ending
    from unnest(${sqlArray("text", ids)}, ${sqlArray("text", addresses)}) as asked(id, address)
      join paywalls p on p.id = asked.id
      left join access a on a.paywall_id = p.id and a.address = asked.address
        and a.expires_at > ${now}::timestamptz and coalesce(a.calls_left > 0, true)`.execute(ctx.db)
  return new Map(
    rows.map(({ name, expires_at, tx_hash, is_watch_ending, ...paywall }) => {
      const access = expires_at && tx_hash ? { expiresAt: expires_at, txHash: tx_hash } : undefined
      return [name, { paywall, access, isWatchEnding: is_watch_ending }]
    }),
  )
}

/** The columns of a paywall that decide access to it. */
type Opened = Pick<Row<"paywalls">, "id" | "merchant_id" | "chain_id" | "subscription_product_id">

/**
 * Returns an address's access by grants or by a subscription, whichever lasts longer. Undefined if it has none, or if
 * its calls are used up.
 */
export const accessOf = (ctx: TxContext, paywall: Opened, address: Address): Promise<Access | undefined> =>
  heldAccess(ctx.db, { now: ctx.now(), paywall, address })

/** An access lookup at one time. */
interface AskedAccess {
  now: Date
  paywall: Opened
  address: Address
}

/** Concurrent lookups share a statement, because many callers may wait at one paywall. */
const heldAccess = gatherRows(async (db: Db, asked: readonly AskedAccess[]) => {
  const now = asked.reduce((latest, each) => (each.now > latest ? each.now : latest), new Date(0))
  const wanted = asked.map(({ paywall, address: payer }, n) => ({
    n,
    id: paywall.id,
    merchant: paywall.merchant_id,
    chain: paywall.chain_id,
    product: paywall.subscription_product_id,
    payer,
  }))
  const columns = "n integer, id text, merchant text, chain integer, product text, payer text"
  const by = {
    merchant: sql<string>`k.merchant`,
    chain: sql<number>`k.chain`,
    product: sql<string>`k.product`,
    payer: sql<Address>`k.payer`,
  }
  // Most paywalls have no product, so the subscriptions are usually left out.
  const subscribed = asked.some(({ paywall }) => paywall.subscription_product_id !== null)
    ? sql`union all (${subscribedTo(db, now, by)})`
    : sql``
  const { rows } = await sql<{ n: number; expires_at: Date; tx_hash: Hash }>`
    select k.n, held.expires_at, held.tx_hash from (${rowsParameter(wanted, columns)}) k cross join lateral (
      select expires_at, tx_hash from (select expires_at, tx_hash from access
          where paywall_id = k.id and address = k.payer and expires_at > ${now} and coalesce(calls_left > 0, true)
        ${subscribed}) every
      where tx_hash is not null order by expires_at desc limit 1) held`.execute(db)
  return new Map(
    rows.flatMap(({ n, expires_at: expiresAt, tx_hash: txHash }): [AskedAccess, Access][] => {
      const of = asked[n]
      return of ? [[of, { expiresAt, txHash }]] : []
    }),
  )
})

/** Selects subscriptions to a product of a merchant on a network that an address pays. */
interface SubscribedBy {
  merchant: string | RawBuilder<string>
  chain: number | RawBuilder<number>
  product: string | RawBuilder<string>
  payer: Address | RawBuilder<Address>
}

/**
 * Builds the query for the access that an address has through subscriptions, together with the last transaction that
 * paid. The product that was paid counts: after a change of product, the old product's access lasts until the new one
 * is paid. Only one network is read, because a contract address may have a different owner on each network.
 */
function subscribedTo(db: Db, now: Date, { merchant, chain, product, payer }: SubscribedBy) {
  return (
    db
      .selectFrom("subscriptions")
      .innerJoinLateral(
        eb =>
          eb
            .selectFrom("invoices")
            .innerJoin("checkout_sessions", "checkout_sessions.id", "invoices.session_id")
            .select(["invoices.product_id", "checkout_sessions.tx_hash"])
            .whereRef("invoices.subscription_id", "=", "subscriptions.id")
            .where("invoices.paid_at", "is not", null)
            // A paid invoice without a hash means that a reorg has just removed the payment.
            .where("checkout_sessions.tx_hash", "is not", null)
            // A prepaid period opens the paywall when the period starts. A trial precedes the first period, so
            // invoice 1 counts immediately.
            .where(eb => eb.or([eb("invoices.period_start", "<=", now), eb("invoices.sequence", "=", 1)]))
            .orderBy("invoices.sequence", "desc")
            .limit(1)
            .as("last"),
        join => join.onTrue(),
      )
      // A prepaid period of another product ends this access when it starts.
      .select([
        sql<Date>`coalesce((select min(ahead.period_start) from invoices ahead where ahead.subscription_id = subscriptions.id
        and ahead.paid_at is not null and ahead.period_start > ${now} and ahead.product_id <> last.product_id), access_until)`.as(
          "expires_at",
        ),
        "last.tx_hash",
      ])
      .where("subscriptions.payer", "=", payer)
      .where("subscriptions.merchant_id", "=", merchant)
      .where("subscriptions.chain_id", "=", chain)
      .where("subscriptions.access_until", ">", now)
      .where("last.product_id", "=", product)
  )
}

/** Whether a call may be made now. A null `remaining` means no limit before the access ends. */
export interface Consumed {
  allowed: boolean
  remaining: number | null
}

/**
 * Takes one call off an address's access. Must be called inside a transaction. A subscription's access comes first.
 * Access without a number of calls allows any number while it lasts. The cost does not depend on the number of
 * grants, because a payer per call has thousands.
 */
export async function takeCall(ctx: TxContext, paywall: Opened, address: Address): Promise<Consumed> {
  const none = { allowed: false, remaining: 0 }
  const { id: paywallId, merchant_id: merchant, chain_id: chain, subscription_product_id: product } = paywall
  if (product !== null) {
    const by = { merchant, chain, product, payer: address }
    if (await subscribedTo(ctx.db, ctx.now(), by).limit(1).executeTakeFirst()) return { allowed: true, remaining: null }
  }
  let held = await holdAccess(ctx, paywallId, address)
  if (held && (!held.since_at || (held.calls_left === null && (await endsInCalls(ctx, paywallId, address))))) {
    await foldAccess(ctx, paywallId, address, { before: foldedOf(held), granted: 0 })
    held = await holdAccess(ctx, paywallId, address)
  }
  if (!held?.expires_at || !held.since_at || held.expires_at <= ctx.now() || held.calls_left === 0) return none
  if (held.calls_left === null) return { allowed: true, remaining: null }
  const next = liveGrants(ctx, paywallId, address)
    .whereRef("calls_used", "<", "calls")
    .where("granted_at", ">=", held.since_at)
    .limit(1)
  const { id } = await next.executeTakeFirstOrThrow()
  await ctx.db.updateTable("grants").set({ calls_used: sql`calls_used + 1` }).where("id", "=", id).execute()
  const { calls_left } = await ctx.db
    .updateTable("access")
    .set({ calls_left: sql`calls_left - 1` })
    .where("paywall_id", "=", paywallId)
    .where("address", "=", address)
    .returning("calls_left")
    .executeTakeFirstOrThrow()
  if (calls_left === 0) accessChanged(ctx, paywallId, address)
  return { allowed: true, remaining: calls_left }
}

/**
 * Whether the latest grant has a number of calls. Such calls are counted again once the time before that grant has
 * ended.
 */
async function endsInCalls(ctx: TxContext, paywallId: string, address: Address): Promise<boolean> {
  const last = liveGrants(ctx, paywallId, address).clearOrderBy().orderBy("granted_at", "desc").orderBy("id", "desc")
  return typeof (await last.limit(1).executeTakeFirst())?.calls === "number"
}

/** Locks the same row as {@link lockAccess}, but inserts none for a new address. */
const holdAccess = (ctx: TxContext, paywallId: string, address: Address) =>
  ctx.db
    .selectFrom("access")
    .select(foldColumns)
    .where("paywall_id", "=", paywallId)
    .where("address", "=", address)
    .forNoKeyUpdate()
    .executeTakeFirst()

/** The query for grants that were not revoked, in grant order. */
const liveGrants = (ctx: TxContext, paywallId: string, address: Address) =>
  ctx.db
    .selectFrom("grants")
    .select(["id", "granted_at as grantedAt", "duration_s as durationS", "tx_hash as txHash"])
    .select(["calls", "calls_used as callsUsed"])
    .where("paywall_id", "=", paywallId)
    .where("address", "=", address)
    .where("revoked_at", "is", null)
    .orderBy("granted_at")
    .orderBy("id")
