/**
 * Which sessions are settled next, and which of their transfers: all that were settled before, and a limited number of
 * new ones, so that no transaction outlasts a round's lease however many transfers an address receives.
 */
import { sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import { isKind } from "../db/is-kind.ts"
import { leftOverColumns } from "../db/left-over.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import type { ClaimedTransfer, Group } from "../settlement/sellable.ts"

/** Sessions in one round; the others stay due for the next. */
const SESSIONS_PER_ROUND = 500
/** New transfers that one transaction books. Each costs two triggers, a claim and three indexes. */
const TRANSFERS_PER_BATCH = 2_000

/** A transfer with the payment that claims it, and whether that payment was accepted beside the session's own. */
export type SessionTransfer = ClaimedTransfer & { beside: boolean | null }

/** The transfers of a session that one transaction settles; `waiting` new ones are left for the next. */
export interface Batch {
  ids: bigint[]
  waiting: number
}

/**
 * A transfer's place among the session's new transfers, from 1; null if it was settled before, a payment claims it, or
 * it can't count now. The largest come first, whatever their age, so that a real payment does not wait behind dust.
 * Other tokens come last: their amounts mean nothing.
 */
const placeIn = (token: Address) => sql`case when t.run_at is not null and c.transfer_id is null
    and t.state in ('confirmed', 'final') then row_number() over (partition by t.deposit_id, t.run_at is not null
      and c.transfer_id is null and t.state in ('confirmed', 'final')
      order by t.token = ${token} desc, t.value desc, t.id) end`

/**
 * Makes the sessions with these addresses or ids due. A submission that failed, or a relay that ended, brings no
 * transfer that would do so.
 */
export async function wakeSessions(
  ctx: TxContext,
  deposits: readonly bigint[],
  resources: readonly string[],
): Promise<void> {
  await sql`update checkout_sessions set run_at = ${ctx.now()}
    where id = any(${sqlArray("text", new Set(resources))}
      || array(select resource_id from deposits where id = any(${sqlArray("bigint", new Set(deposits))})))`.execute(
    ctx.db,
  )
}

/**
 * The sessions that have a transfer to settle or are due by time, each with the senders of the unclaimed transfers that
 * would be settled now. Sessions with the fewest transfers come first: one that is flooded with dust takes many rounds,
 * and the others are not delayed.
 */
export async function dueSessions(ctx: TxContext, network: NetworkInfo): Promise<Group[]> {
  const { rows } = await sql<Group>`
    with due as (
      (select d.resource_id as id from (select deposit_id, count(*) as n from transfers
          where chain_id = ${network.chainId} and run_at <= ${ctx.now()} group by 1) arrived
        join deposits d on d.id = arrived.deposit_id where ${isKind("d.resource_id", "cs")} order by arrived.n, d.id
        limit ${SESSIONS_PER_ROUND})
      union (select id from checkout_sessions where chain_id = ${network.chainId} and run_at <= ${ctx.now()}
        order by run_at limit ${SESSIONS_PER_ROUND})),
    placed as (select d.resource_id, t.from_address, t.state, p.status, ${placeIn(network.token.address)} as place
      from due join deposits d on d.resource_id = due.id join transfers t on t.deposit_id = d.id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id)
    select due.id as "resourceId", coalesce(array_agg(distinct placed.from_address::text) filter (where placed.state <> 'gone'
        and coalesce(placed.place, 0) <= ${TRANSFERS_PER_BATCH}
        and coalesce(placed.status, '') not in ('granted', 'returned')), '{}') as senders
    from due left join placed on placed.resource_id = due.id group by due.id order by count(placed.resource_id), due.id`.execute(
    ctx.db,
  )
  return rows
}

/**
 * Locks the transfers of a session's address that are settled now. Call it inside a transaction, under the session's
 * lock.
 */
export async function holdBatch(ctx: TxContext, deposit: Row<"deposits">, token: Address): Promise<Batch> {
  const { rows } = await sql<{ id: bigint; place: bigint | null }>`
    select t.id, ${placeIn(token)} as place from transfers t left join claims c on c.transfer_id = t.id
    where t.deposit_id = ${deposit.id}`.execute(ctx.db)
  const taken = rows.filter(({ place }) => place === null || place <= BigInt(TRANSFERS_PER_BATCH)).map(({ id }) => id)
  // Transfers are locked before any book, in the order that the scanner uses too.
  await sql`select id from transfers where id = any(${sqlArray("bigint", taken)}) order by id for no key update`.execute(
    ctx.db,
  )
  return { ids: taken, waiting: rows.length - taken.length }
}

/** Reads these transfers with their payments, in chain order. Call it after they are locked. */
export async function readBatch(ctx: TxContext, { ids }: Batch): Promise<SessionTransfer[]> {
  const { rows } = await sql<SessionTransfer>`
    select t.*, ${leftOverColumns}, p.id as payment_id, p.status as payment_status, p.status = 'granted' and p.beside as beside from transfers t
      left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where t.id = any(${sqlArray("bigint", ids)}) order by t.block_number, t.log_index`.execute(ctx.db)
  return rows
}
