/**
 * Reads a paywall's money for settlement: which groups are due, which of their transfers, and the other facts that
 * settlement needs.
 */
import { type RawBuilder, sql } from "kysely"
import type { Due, Group, StandingPayment } from "../../ledger/settlement/sellable.ts"
import { dueTransfers, inTurn, isRestDue, turnOf } from "../../ledger/settlement/turns.ts"
import { isAttemptOf, relaysBy } from "../../ledger/txmanager/read-batch-calls.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { isKind } from "../../platform/db/is-kind.ts"
import { remainingValue, remainingValueColumns } from "../../platform/db/remaining-value.ts"
import { sqlArray, sqlRows } from "../../platform/db/sql-array.ts"
import { allColumns } from "../../platform/db/whole-rows.ts"
import type { IdPrefix } from "../../platform/ids.ts"
import type { Version } from "./payment.ts"
import { type AccessTransfer, authorizedKey } from "./plan-access.ts"

/**
 * How many open transfers of one sender are read: the largest, and the newest in other tokens. A real buyer has a
 * handful, and a flood of dust must not cost more than this.
 */
const OPEN_TRANSFERS = 2_000
/**
 * The same limit for transfers that only one of two endpoints reports. Such transfers count only towards small
 * payments.
 */
const SINGLE_TRANSFERS = 200
/** How many of a group's due transfers one transaction handles at most. The others stay due for the next round. */
export const DUE_PER_BATCH = 5_000
/** How many senders one transaction locks at most if their claimed transfers were mined again with other senders. */
const MOVED_TOGETHER = 20

/**
 * The senders with something due, for each paywall or other resource of this kind. Merchants take turns. Senders who
 * submitted a hash come first, then larger amounts, so that dust does not delay buyers. A group has several senders
 * only if a claimed transfer was mined again with another sender. Unconfirmed transfers are left out, because their
 * confirmation makes them due.
 */
export async function dueSenders(ctx: TxContext, network: NetworkInfo, prefix: IdPrefix = "pw"): Promise<Due> {
  const owed = sql`
    select o.*, coalesce((o.paywall_id, o.sender) in (select resource_id, address from submissions where status = 'verifying'), false) as is_first,
      concat_ws(' ', o.paywall_id, o.sender, o.payer) as name
    from (select d.resource_id as paywall_id, d.merchant_id, t.from_address as sender, p.payer,
        sum(t.value) filter (where t.token = ${network.token.address}) as sum, min(t.run_at) as since
      from (${dueTransfers(network.chainId, ctx.now())}) t join deposits d on d.id = t.deposit_id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
      where t.state <> 'seen' and ${isKind("d.resource_id", prefix)}
      group by 1, 2, 3, 4) o`
  const { rows } = await sql<{ paywall_id: string; sender: Address; payer: Address | null; n: number }>`
    select paywall_id, sender, payer, n from (${inTurn(owed)}) due order by ${turnOf}`.execute(ctx.db)
  const groups = new Map<string, Set<Address>>()
  let moves = 0
  for (const { paywall_id, sender, payer } of rows) {
    const moved = payer !== null && payer !== sender
    // Moved transfers are rare, so those of a paywall share groups.
    const key = moved ? `${paywall_id} ${Math.floor(moves++ / MOVED_TOGETHER)}` : `${paywall_id} ${sender}`
    const senders = groups.get(key) ?? new Set()
    groups.set(key, senders.add(sender))
    if (payer) senders.add(payer)
  }
  const all = [...groups].map(([key, senders]) => ({
    resourceId: key.split(" ")[0] ?? "",
    senders: [...senders].sort(),
  }))
  return { groups: all, isMore: isRestDue(rows) }
}

/**
 * Locks at most `most` due transfers of these senders until the transaction ends; the others stay due. Unconfirmed
 * transfers are left out, because their confirmation makes them due. Transfers that a payment of a sender outside the
 * group claims are left out too: that payment must be reversed in the same transaction.
 */
export async function lockDueTransfers(
  ctx: TxContext,
  { resourceId, senders }: Group,
  most = DUE_PER_BATCH,
): Promise<bigint[]> {
  const among = sqlArray("text", senders)
  const rows = await sql<{ id: bigint }>`
    /* named: lock_due_transfers */ select t.id from transfers t where t.run_at <= ${ctx.now()} and t.state <> 'seen' and t.id in (
      select s.id from deposits d join transfers s on s.deposit_id = d.id
        where d.resource_id = ${resourceId} and s.from_address = any(${among}) and s.run_at is not null)
      and not exists (select from claims c join payments p on p.id = c.payment_id
        where c.transfer_id = t.id and p.payer <> all(${among}))
    order by t.id limit ${most} for no key update of t`.execute(ctx.db)
  return rows.rows.map(row => row.id)
}

/**
 * This sender's payments that claim one of these transfers. Payments with unconfirmed transfers are left out, because
 * an unconfirmed block is no evidence. Reversed payments are included only if the merchant accepted them or revoked
 * their access. They are granted again when all their money is back and two endpoints report every part.
 */
export async function standingPayments(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  due: readonly bigint[],
): Promise<StandingPayment[]> {
  if (due.length === 0) return []
  const { rows } = await sql<StandingPayment>`
    /* named: standing_payments */ select ${allColumns("p", "payments")}, has.there, case when has.alone then 0 else has.there end as sure,
      has.there > p.amount and p.accepted_at is null and not revoked.by_merchant as grown
    from (select distinct payment_id from claims where transfer_id in (${sqlRows("bigint", due)})) due
      -- By its id: a kept plan would read all payments of this payer, and a frequent one has thousands.
      cross join lateral (select ${allColumns("o", "payments")} from payments o where o.id = due.payment_id limit 1) p
      cross join lateral (select exists (select from grants g
        where g.payment_id = p.id and g.revoked_by = 'merchant') as by_merchant) revoked join lateral (
      select coalesce(sum(${remainingValue}) filter (where t.state <> 'gone' and t.from_address = p.payer), 0) as there,
        bool_or(t.single_source) as alone, bool_or(t.state = 'seen') as unconfirmed
      from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id) has on true
    where p.resource_id = ${paywallId} and p.payer = ${payer} and not has.unconfirmed
      and (p.status in ('granted', 'returned')
        or (p.status = 'reversed' and (p.accepted_at is not null or revoked.by_merchant)))
    order by p.id`.execute(ctx.db)
  return rows
}

/**
 * SQL: whether the transfers of a payment `p` with grant `g` can count again. If the merchant revoked the access, the
 * transfers stay used as long as the whole payment can come back. If a reorg removed a part, the payer can use the
 * rest freely.
 */
const canCount = sql`(g.revoked_by is distinct from 'merchant' or p.status = 'open'
  or p.amount > (select coalesce(sum(l.value - k.given_back) filter (where l.state <> 'gone' and l.from_address = p.payer), 0)
    from claims k join transfers l on l.id = k.transfer_id where k.payment_id = p.id))`

/**
 * Confirmed transfers that count for no payment, or for an open or reversed one, in chain order. The largest are read
 * in the settlement token, the newest in other tokens. Applied transfers are left out, because a frequent payer has
 * thousands. `payment_payer` is null for a payment whose access the merchant revoked, because a second grant would
 * give no access. Transfers that a payment of a sender outside the group claims are left out. That payment would lose
 * them without being locked, and would stay empty if the process died.
 */
export async function openTransfers(
  ctx: TxContext,
  { resourceId, senders }: Group,
  payer: Address,
  { token }: NetworkInfo,
): Promise<AccessTransfer[]> {
  const from = sql`transfers t left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
      left join grants g on g.payment_id = p.id`
  const open = sql`select t.* from ${from}
    where t.deposit_id = d.id and t.from_address = ${payer} and not t.applied
      and t.state in ('confirmed', 'final') and (p.id is null or p.status in ('reversed', 'open'))
      and (p.payer is null or p.payer = any(${sqlArray("text", senders)})) and ${canCount}`
  const ofPaywall = (each: RawBuilder<unknown>) =>
    sql`select each.* from deposits d cross join lateral (${each}) each where d.resource_id = ${resourceId}`
  // Read separately, because one of two endpoints can invent any number of large transfers, which must not displace
  // real ones.
  const greatest = (isSingle: boolean, most: number) => {
    const each = sql`${open} and t.token = ${token.address} and t.single_source = ${sql.lit(isSingle)}
      order by t.value desc, t.id limit ${sql.lit(most)}`
    return sql`(select id from (${ofPaywall(each)}) own order by value desc, id limit ${sql.lit(most)})`
  }
  // Two index ranges on the token, because a condition that is not a range would read the whole index.
  const others = sql`${open} and t.token < ${token.address} union all ${open} and t.token > ${token.address}`
  const { rows } = await sql<AccessTransfer>`
    /* named: open_transfers */ with read as materialized (
      ${greatest(false, OPEN_TRANSFERS)} union all ${greatest(true, SINGLE_TRANSFERS)}
      union all
      (select id from (${ofPaywall(others)}) others order by block_number desc, log_index desc limit ${sql.lit(OPEN_TRANSFERS)}))
    select ${allColumns("t", "transfers")}, ${remainingValueColumns}, p.id as payment_id, p.status as payment_status,
      case when g.revoked_by is distinct from 'merchant' then p.payer end as payment_payer
    from ${from} where t.id in (select id from read) order by t.block_number, t.log_index`.execute(ctx.db)
  return rows
}

/**
 * The sum of those payments of a sender at a paywall that only one endpoint reports, in base units of the settlement
 * token.
 */
export async function countedAlone(
  ctx: TxContext,
  network: NetworkInfo,
  paywallId: string,
  payer: Address,
): Promise<bigint> {
  const { rows } = await sql<{ sum: bigint }>`
    select coalesce(sum(t.value), 0) as sum from payments p join claims c on c.payment_id = p.id
      join transfers t on t.id = c.transfer_id
    where p.resource_id = ${paywallId} and p.payer = ${payer} and p.status in ('granted', 'returned')
      and t.single_source and t.state <> 'gone' and t.token = ${network.token.address}`.execute(ctx.db)
  return rows[0]?.sum ?? 0n
}

/** Returns which of these transactions an address submitted to a paywall, or had executed by an authorization. */
export async function submittedOf(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  hashes: readonly Hash[],
): Promise<Set<Hash>> {
  if (hashes.length === 0) return new Set()
  const given = sqlArray("text", new Set(hashes))
  const submissions = ctx.db
    .selectFrom("submissions")
    .modifyFront(sql`/* named: submitted_of */`)
    .select("tx_hash")
    .where("resource_id", "=", paywallId)
    .where("address", "=", payer)
    .where(sql<boolean>`tx_hash = any(${given})`)
  // An agent's payment by authorization needs no submission, whoever executed it.
  const found = ctx.db
    .selectFrom("settlements")
    .select("found_hash as tx_hash")
    .where("resource_id", "=", paywallId)
    .where("payer", "=", payer)
    .where(sql<boolean>`found_hash = any(${given})`)
    .$narrowType<{ tx_hash: Hash }>()
  const relayed = ctx.db
    .selectFrom("payouts")
    .innerJoin("deposits", "deposits.id", "payouts.deposit_id")
    .innerJoin("transaction_attempts", join => join.on(isAttemptOf))
    .select("transaction_attempts.hash as tx_hash")
    .where("payouts.payer", "=", payer)
    .where("payouts.kind", "=", "settle")
    .where("deposits.resource_id", "=", paywallId)
    .where(sql<boolean>`transaction_attempts.hash = any(${given})`)
    .$narrowType<{ tx_hash: Hash }>()
  return new Set((await submissions.unionAll(relayed).unionAll(found).execute()).map(row => row.tx_hash))
}

/**
 * When the agents' payments that these transactions executed were accepted, by {@link authorizedKey}. An agent paid
 * for what it was served at that time, even if the paywall changed before the block.
 */
export async function authorizedAt(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  hashes: readonly Hash[],
): Promise<Map<string, Date>> {
  if (hashes.length === 0) return new Map()
  const given = sqlArray("text", new Set(hashes))
  const { rows } = await sql<{ hash: Hash; amount: bigint; at: Date }>`
    /* named: authorized_at */ select r.hash, s.amount, s.created_at as at from ${relaysBy(hashes)} r join settlements s on s.chain_id = r.chain_id
      and s.token = r.token and s.payer = r.payer and s.nonce = r.auth_nonce
    where r.kind = 'settle' and s.resource_id = ${paywallId} and s.payer = ${payer}
    union select found_hash, amount, created_at from settlements
    where resource_id = ${paywallId} and payer = ${payer} and found_hash = any(${given})
    order by at desc`.execute(ctx.db)
  return new Map(rows.map(({ hash, amount, at }) => [authorizedKey(hash, amount), at]))
}

/** All versions of a paywall, in no order. */
export async function versionsOf(ctx: TxContext, paywallId: string): Promise<Version[]> {
  const rows = await ctx.db.selectFrom("paywall_versions").selectAll().where("paywall_id", "=", paywallId).execute()
  return rows.map(row => ({
    n: row.n,
    price: row.price,
    active: row.active,
    depositId: row.deposit_id,
    fromAt: row.from_at,
    untilAt: row.until_at,
  }))
}

/** Whether this sender has an unconfirmed transfer to this paywall that counts for no payment yet. */
export async function moreIsComing(ctx: TxContext, paywallId: string, payer: Address): Promise<boolean> {
  const seen = await ctx.db
    .selectFrom("transfers")
    .innerJoin("deposits", "deposits.id", "transfers.deposit_id")
    .modifyFront(sql`/* named: more_is_coming */`)
    .select("transfers.id")
    .where("deposits.resource_id", "=", paywallId)
    .where("transfers.from_address", "=", payer)
    // Written as SQL text, so that a cached plan can use the partial index of unapplied transfers.
    .where(sql<boolean>`not transfers.applied`)
    .where("transfers.state", "=", "seen")
    .limit(1)
    .executeTakeFirst()
  return seen !== undefined
}
