/**
 * Selects the sessions to settle next, and their largest transfers. However many transfers an address receives, no
 * transaction grows or outlasts a round's lease.
 */
import { type RawBuilder, sql } from "kysely"
import type { ClaimedTransfer, Due } from "../../ledger/settlement/sellable.ts"
import { dueTransfers, inTurn, isRestDue, turnOf } from "../../ledger/settlement/turns.ts"
import type { Address } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { isKind } from "../../platform/db/is-kind.ts"
import { remainingValueColumns } from "../../platform/db/remaining-value.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray, sqlRows } from "../../platform/db/sql-array.ts"
import { allColumns } from "../../platform/db/whole-rows.ts"

/** The most sessions per round that are due by time. The others stay due for the next round. */
const TIMED_PER_ROUND = 500
/**
 * The most undecided transfers in the settlement token that one settlement reads at an address, largest first. The
 * others stay in the address's books until the merchant has decided about larger ones.
 */
const MAX_READ = 2_000
/**
 * The same limit for transfers that only one of two endpoints reports. Such transfers count only towards small
 * payments.
 */
const MAX_SINGLE = 200
/** The most transfers in other tokens, oldest first, because amounts in them mean nothing. */
const MAX_OTHER = 500
/**
 * The most due transfers that one transaction settles, whether they were read or not. Each costs several index
 * writes.
 */
const MAX_ENDED = 5_000

/**
 * A transfer with the payment that claims it, and whether that payment was accepted in addition to the session's own.
 */
export type SessionTransfer = ClaimedTransfer & { beside: boolean | null }

/** The transfers of a session that one transaction settles. */
export interface Batch {
  /** The transfers to read. */
  ids: bigint[]
  /** The transfers that are no longer due afterwards: those that were read, and smaller ones. */
  ended: bigint[]
  /** Whether more transfers stay due. */
  isMore: boolean
}

/**
 * SQL: the ids of a deposit's undecided transfers that a settlement reads. The transfers of the session's payment,
 * and of payments that a reorg changed, are read too.
 */
function readAt(deposit: RawBuilder<unknown>, token: Address): RawBuilder<unknown> {
  const undecided = sql`select t.* from transfers t left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where t.deposit_id = ${deposit} and not t.applied and t.state <> 'gone'
      and (p.id is null or p.status in ('open', 'reversed'))`
  // Two index ranges on the token, because a condition that is not a range would read the whole index.
  const ours = (isSingle: boolean, most: number) =>
    sql`(select id from (${undecided} and t.token = ${token} and t.single_source = ${sql.lit(isSingle)}
      order by t.value desc, t.id limit ${sql.lit(most)}) greatest)`
  // Read separately, because one of two endpoints can invent any number of large transfers, which must not displace
  // real ones.
  return sql`${ours(false, MAX_READ)} union all ${ours(true, MAX_SINGLE)}
    union all (select id from (${undecided} and t.token < ${token} union all ${undecided} and t.token > ${token}) others
      order by block_number, log_index limit ${sql.lit(MAX_OTHER)})`
}

/**
 * Makes the sessions with these addresses or ids due at `at`, by default now. A failed submission or an ended relay
 * needs this call, because it brings no transfer that would make its session due.
 */
export async function wakeSessions(
  ctx: TxContext,
  deposits: readonly bigint[],
  resources: readonly string[],
  at = ctx.now(),
): Promise<void> {
  await sql`update checkout_sessions set run_at = ${at}
    where id = any(${sqlArray("text", new Set(resources))}
      || array(select resource_id from deposits where id = any(${sqlArray("bigint", new Set(deposits))})))`.execute(
    ctx.db,
  )
}

/**
 * The sessions that have a transfer to settle or are due by time. Merchants take turns. Each session comes with the
 * senders of the undecided transfers to read.
 */
export async function dueSessions(ctx: TxContext, { chainId, token }: NetworkInfo): Promise<Due> {
  const owed = sql`
    select id as name, merchant_id, max(sum) as sum, min(since) as since, false as is_first from (
      select d.resource_id as id, d.merchant_id, arrived.sum, arrived.since
        from (select deposit_id, sum(value) filter (where token = ${token.address}) as sum, min(run_at) as since
          from (${dueTransfers(chainId, ctx.now())}) due group by 1) arrived
        join deposits d on d.id = arrived.deposit_id where ${isKind("d.resource_id", "cs")}
      union all
      (select id, merchant_id, null, run_at from checkout_sessions where chain_id = ${chainId} and run_at <= ${ctx.now()}
        order by run_at limit ${TIMED_PER_ROUND})) each group by 1, 2`
  const { rows } = await sql<{ resourceId: string; senders: Address[]; n: number }>`
    select due.name as "resourceId", due.n, array(select distinct s.from_address::text from deposits d
        cross join lateral (${readAt(sql`d.id`, token.address)}) read join transfers s on s.id = read.id
      where d.resource_id = due.name) as senders
    from (${inTurn(owed)}) due order by ${turnOf}`.execute(ctx.db)
  return { groups: rows.map(({ resourceId, senders }) => ({ resourceId, senders })), isMore: isRestDue(rows) }
}

/** Returns the senders of a session's undecided transfers that a settlement would read. */
export async function sendersAt(ctx: TxContext, sessionId: string, token: Address): Promise<Address[]> {
  const { rows } = await sql<{ sender: Address }>`
    select distinct t.from_address as sender from deposits d cross join lateral (${readAt(sql`d.id`, token)}) read
      join transfers t on t.id = read.id where d.resource_id = ${sessionId} order by 1`.execute(ctx.db)
  return rows.map(({ sender }) => sender)
}

/**
 * Locks the transfers of a session's address for this settlement. Must be called inside a transaction, under the
 * session's lock.
 */
export async function holdBatch(ctx: TxContext, deposit: Row<"deposits">, token: Address): Promise<Batch> {
  const { rows } = await sql<{ id: bigint; isRead: boolean; isDue: boolean; isGone: boolean }>`
    /* named: hold_batch */ with due as (select id, state from transfers where deposit_id = ${deposit.id} and run_at <= ${ctx.now()} limit ${sql.lit(MAX_ENDED + 1)}),
      changed as (select c.payment_id as id from due join claims c on c.transfer_id = due.id),
      own as (select c.transfer_id as id from payments p join claims c on c.payment_id = p.id
        where p.resource_id = ${deposit.resource_id} and ((p.status = 'granted' and not p.beside)
          or (p.status <> 'open' and p.id in (select id from changed)))),
      read as (select id from own union select id from (${readAt(sql`${deposit.id}`, token)}) undecided)
    select coalesce(read.id, due.id) as id, read.id is not null as "isRead", due.id is not null as "isDue",
      read.id is null and due.state = 'gone' as "isGone"
      from read full join due on due.id = read.id`.execute(ctx.db)
  const ids = rows.flatMap(({ id, isRead }) => (isRead ? [id] : []))
  const touched = rows.map(({ id }) => id)
  // Transfers are locked before any book, in the same order as the scanner locks them.
  await sql`/* named: lock_batch */ select count(*) from (select id from transfers where id in (${sqlRows("bigint", touched)})
    order by id for no key update) locked`.execute(ctx.db)
  const back = await backAmong(
    ctx,
    rows.filter(({ isGone }) => isGone).map(({ id }) => id),
  )
  const ended = touched.filter(id => !back.has(id))
  return { ids, ended, isMore: back.size > 0 || rows.filter(({ isDue }) => isDue).length > MAX_ENDED }
}

/**
 * Returns which of these transfers are no longer gone, because the scanner restored them while this transaction
 * waited for the lock. They were not read, so they stay due.
 */
async function backAmong(ctx: TxContext, gone: readonly bigint[]): Promise<Set<bigint>> {
  if (gone.length === 0) return new Set()
  const { rows } = await sql<{ id: bigint }>`
    select id from transfers where id = any(${sqlArray("bigint", gone)}) and state <> 'gone'`.execute(ctx.db)
  return new Set(rows.map(({ id }) => id))
}

/** Reads these transfers with their payments, in chain order. Must be called after they are locked. */
export async function readBatch(ctx: TxContext, { ids }: Batch): Promise<SessionTransfer[]> {
  const { rows } = await sql<SessionTransfer>`
    /* named: read_batch */ select ${allColumns("t", "transfers")}, ${remainingValueColumns}, p.id as payment_id, p.status as payment_status, p.status = 'granted' and p.beside as beside from transfers t
      left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where t.id in (${sqlRows("bigint", ids)}) order by t.block_number, t.log_index`.execute(ctx.db)
  return rows
}
