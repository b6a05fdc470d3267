/**
 * Which sessions are settled next, and which of their transfers: all that were settled before, and a bounded part of what is
 * new, so that no transaction outlasts a round's lease however many transfers an address is sent.
 */
import { sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { NetworkInfo } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import { isKind } from "../db/is-kind.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import type { ClaimedTransfer, Group } from "../settlement/sellable.ts"

/** Sessions in one round; the rest is due in the next. */
const SESSIONS_A_ROUND = 500
/** New transfers that one transaction books: each costs two triggers, a claim and three indexes. */
const TRANSFERS_A_BATCH = 2_000

/** A transfer with the payment that claims it, and whether that was accepted beside what had paid the session. */
export type SessionTransfer = ClaimedTransfer & { beside: boolean | null }

/** The transfers that one transaction settles of a session; so many are left `waiting` for the next. */
export interface Batch {
  ids: bigint[]
  waiting: number
}

/**
 * Its place among the session's new transfers, from 1; null for one that was settled before, that a payment claims, or that
 * counts for nothing now. The greatest come first, whatever their age: who pays waits for no dust. Tokens whose amounts say
 * nothing come last.
 */
const placeIn = (token: Address) => sql`case when t.run_at is not null and c.transfer_id is null
    and t.state in ('confirmed', 'final') then row_number() over (partition by t.deposit_id, t.run_at is not null
      and c.transfer_id is null and t.state in ('confirmed', 'final')
      order by t.token = ${token} desc, t.value desc, t.id) end`

/** Makes the sessions due that have these addresses, or these ids: a submission that failed, or a relay that ended, brings no transfer. */
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
 * Sessions with a transfer to settle, or whose own time has come, and who sent what is settled of them now and not claimed
 * yet. Those with the fewest transfers come first: one that is flooded with dust takes many rounds, and nobody else waits.
 */
export async function dueSessions(ctx: TxContext, network: NetworkInfo): Promise<Group[]> {
  const { rows } = await sql<Group>`
    with due as (
      (select d.resource_id as id from (select deposit_id, count(*) as n from transfers
          where chain_id = ${network.chainId} and run_at <= ${ctx.now()} group by 1) arrived
        join deposits d on d.id = arrived.deposit_id where ${isKind("d.resource_id", "cs")} order by arrived.n, d.id
        limit ${SESSIONS_A_ROUND})
      union (select id from checkout_sessions where chain_id = ${network.chainId} and run_at <= ${ctx.now()}
        order by run_at limit ${SESSIONS_A_ROUND})),
    placed as (select d.resource_id, t.from_address, t.state, p.status, ${placeIn(network.token.address)} as place
      from due join deposits d on d.resource_id = due.id join transfers t on t.deposit_id = d.id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id)
    select due.id as "resourceId", coalesce(array_agg(distinct placed.from_address::text) filter (where placed.state <> 'gone'
        and coalesce(placed.place, 0) <= ${TRANSFERS_A_BATCH}
        and coalesce(placed.status, '') not in ('granted', 'returned')), '{}') as senders
    from due left join placed on placed.resource_id = due.id group by due.id order by count(placed.resource_id), due.id`.execute(
    ctx.db,
  )
  return rows
}

/** Holds the transfers of a session's address that are settled now; call it inside a transaction, under the session's lock. */
export async function holdBatch(ctx: TxContext, deposit: Row<"deposits">, token: Address): Promise<Batch> {
  const { rows } = await sql<{ id: bigint; place: bigint | null }>`
    select t.id, ${placeIn(token)} as place from transfers t left join claims c on c.transfer_id = t.id
    where t.deposit_id = ${deposit.id}`.execute(ctx.db)
  const taken = rows.filter(({ place }) => place === null || place <= BigInt(TRANSFERS_A_BATCH)).map(({ id }) => id)
  // Before any book, as whoever stores what the chain says.
  await sql`select id from transfers where id = any(${sqlArray("bigint", taken)}) order by id for no key update`.execute(
    ctx.db,
  )
  return { ids: taken, waiting: rows.length - taken.length }
}

/** These transfers with their payments, in the order of the chain; read them when they are held. */
export async function readBatch(ctx: TxContext, { ids }: Batch): Promise<SessionTransfer[]> {
  const { rows } = await sql<SessionTransfer>`
    select t.*, p.id as payment_id, p.status as payment_status, p.status = 'granted' and p.beside as beside from transfers t
      left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where t.id = any(${sqlArray("bigint", ids)}) order by t.block_number, t.log_index`.execute(ctx.db)
  return rows
}
