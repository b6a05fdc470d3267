/**
 * Limits what the relays of one payer may cost us. A failed relay costs gas, and a payer can make each relay fail after
 * its simulation. The payer can move the money, cancel the authorization, or let its account's code burn the gas
 * (EIP-7702).
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import { gatherBy } from "../../platform/db/gather.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"

const DAY_MS = 86_400_000
/**
 * After this many failed relays of one session, or of one payer in a day, no more relays are made, because each failure
 * cost us gas.
 */
export const MAX_REVERTED = 3
/**
 * How many relays of a payer may be in flight at a merchant before any of them has succeeded there. Without this limit,
 * 128 relays failed before the first failure was known. These failures cost 25.9 million gas of ours, and 36,800 gas of
 * the payer's.
 */
export const FIRST_IN_FLIGHT = 8
/** More relays than this are never in flight, so no more of a payer's successes are counted. */
const MAX_IN_FLIGHT = 512
/**
 * How many relays of a payer may wait or be in flight. The engine considers all waiting relays in each turn: 4,000 of
 * them delayed the merchant's other buyers by 6 seconds.
 */
export const MAX_OPEN = 256
/** How long a failure may count as someone else's fault while the chain does not show whose fault it was. */
export const UNEXPLAINED_MS = 3_600_000
/**
 * How long after a failure the search for a missing use is repeated. A node that lags some blocks still reports the
 * nonce as unused.
 */
export const DOUBTED_MS = 15_000

/**
 * Why a payer gets no more relays. `failed` means that too many relays failed in a day. `unexplained` means that too
 * many relays failed, but for some of them it is unclear whose fault that was.
 */
export type PayerTrouble = "failed" | "unexplained"

/**
 * Returns the payers whose relays failed on chain too often in a day. A contract wallet can make all its relays fail,
 * at our cost, in any number of sessions. Failures that are not the payer's fault do not count: nonces used up by empty
 * transactions, batches that failed as a whole, and authorizations that someone else submitted first. A reservation
 * never counts as submitted by someone else, because only an escrow's collector can submit it.
 */
export async function failingPayers(ctx: TxContext, payers: readonly Address[]): Promise<Map<Address, PayerTrouble>> {
  const given = [...new Set(payers)].map(payer => ({ payer }))
  const ago = (ms: number) => new Date(ctx.now().getTime() - ms)
  const { rows } = await sql<{ payer: Address; sure: number }>`
    /* named: failing_payers */ select payer, sure from (${rowsParameter(given, "payer text")}) g cross join lateral (
      select count(*)::int as n, count(*) filter (where i.updated_at <= ${ago(UNEXPLAINED_MS)}
          or i.kind not in ${kindsThat(({ isPublic }) => isPublic)} or (i.preempted = false and (i.state = 'reverted' or i.updated_at <= ${ago(DOUBTED_MS)})))::int as sure
      from payouts i where i.payer = g.payer and i.succeeded = false and i.updated_at > ${ago(DAY_MS)} and i.preempted is not true
        and not exists (select from transaction_attempts a where a.payout_id = coalesce(i.batch_id, i.id) and a.empty and a.hash = i.tx_hash)
        and not exists (select from payouts b where b.id = i.batch_id and b.succeeded = false)) failed
    where n >= ${MAX_REVERTED}::int`.execute(ctx.db)
  return new Map(rows.map(({ payer, sure }) => [payer, sure >= MAX_REVERTED ? "failed" : "unexplained"]))
}

/** Whether a payer's relays failed too often. Concurrent requests share one query. */
export const isFailing = async (ctx: Context, payer: Address): Promise<boolean> =>
  (await standingOf(ctx, payer)) !== undefined

const standingOf = gatherBy(failingPayers)

type Call = Pick<Row<"payouts">, "id" | "payer" | "merchant_id">

/**
 * Returns the ids of due relays that wait because too many relays of the same payer are in flight at the same merchant.
 * A payer may have {@link FIRST_IN_FLIGHT}, and one more for each success there in the last day, like TCP's slow start.
 * So a payer can waste little more of a merchant's budget than it paid that merchant in a day. A payer whose relays
 * succeed doubles its relays in flight with each block.
 *
 * @example
 *   // 32 due relays of a new payer: 8 are signed, then 16 when these are mined, and then the rest.
 *   ;(await beyondFlight(ctx, network, due)).size // 24
 */
export async function beyondFlight(
  ctx: TxContext,
  { chainId }: Pick<Network, "chainId">,
  calls: readonly Call[],
): Promise<Set<string>> {
  const keyOf = ({ payer, merchant_id: merchant }: Pick<Call, "payer" | "merchant_id">) => `${payer} ${merchant}`
  const groups = Map.groupBy(
    calls.filter(({ payer }) => payer !== null),
    keyOf,
  )
  const given = [...groups.values()].flatMap(([first, ...rest]) =>
    first ? { payer: first.payer, merchant_id: first.merchant_id, due: rest.length + 1 } : [],
  )
  if (given.length === 0) return new Set()
  const { rows } = await sql<Pick<Call, "payer" | "merchant_id"> & { room: number }>`
    /* named: payer_flights */ with flying as (select payer, merchant_id, count(*)::int as n from payouts
      where chain_id = ${chainId} and lane = 'relay' and state = 'assigned' and payer is not null and transfer_missing_at is null group by payer, merchant_id)
    select g.payer, g.merchant_id, ${FIRST_IN_FLIGHT}::int - coalesce(f.n, 0) + (select count(*)::int from (select from payouts i
        where i.payer = g.payer and i.merchant_id = g.merchant_id and i.succeeded and i.updated_at > ${new Date(ctx.now().getTime() - DAY_MS)}
        limit ${MAX_IN_FLIGHT}) s) as room
    from (${rowsParameter(given, "payer text, merchant_id text, due integer")}) g
      left join flying f on f.payer = g.payer and f.merchant_id = g.merchant_id
    where coalesce(f.n, 0) + g.due > ${FIRST_IN_FLIGHT}::int`.execute(ctx.db)
  const beyond = rows.flatMap(row => groups.get(keyOf(row))?.slice(Math.max(0, row.room)) ?? [])
  return new Set(beyond.map(({ id }) => id))
}

/** Whether a payer already has the highest allowed number of relays waiting and in flight. */
export async function isFull(ctx: TxContext, { chainId }: Pick<Network, "chainId">, payer: Address): Promise<boolean> {
  const { rows } = await sql<{ n: number }>`/* named: open_relays */ select count(*)::int as n from payouts
    where chain_id = ${chainId} and lane = 'relay' and state in ('queued', 'held', 'assigned') and payer = ${payer}`.execute(
    ctx.db,
  )
  return (rows[0]?.n ?? 0) >= MAX_OPEN
}
