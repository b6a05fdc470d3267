/**
 * Limits what one payer's relays may cost us. A relay that fails costs gas, and a payer can have each fail after its
 * simulation succeeded: by moving its money, by cancelling, or by code of its account that burns the gas (EIP-7702).
 */
import { sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import type { Context, TxContext } from "../context.ts"
import { gatherBy } from "../db/gather.ts"
import { givenRows } from "../db/given-rows.ts"
import type { Row } from "../db/schema.ts"
import { findUse, SEARCHED_BLOCKS, unlessSilent } from "./find-use.ts"

const DAY_MS = 86_400_000
/**
 * After this many relays of one session, or of one payer in a day, failed on chain, no more are made: each cost us gas.
 */
export const MAX_REVERTED = 3
/**
 * How many relays of a payer may be in flight before any succeeded. With as many as fit, 128 failed before the first
 * failure was known: 25.9 million gas of ours for 36,800 of the payer's.
 */
export const FIRST_IN_FLIGHT = 8
/** More relays than this are never in flight, so no more of a payer's successes are counted. */
const MOST_IN_FLIGHT = 512
/** How many failed relays the chain is asked about at once; each takes a few RPC requests. */
const ASKED_AT_ONCE = 10
/** How long after a failure the chain is asked about it, if no quorum answers. */
const ASKED_MS = 3_600_000

/**
 * Returns the payers whose relays failed on chain too often in a day: a contract wallet can make all its relays fail,
 * at our cost, in as many sessions as it likes. Not counted is what is not the payer's fault: a nonce that an empty
 * transaction used up, a batch that failed as a whole, and an authorization that somebody else carried out first.
 */
export async function failingPayers(ctx: TxContext, payers: readonly Address[]): Promise<Set<Address>> {
  const given = [...new Set(payers)].map(payer => ({ payer }))
  const { rows } = await sql<{ payer: Address }>`
    /* named: failing_payers */ select payer from (${givenRows(given, "payer text")}) g
    where ${MAX_REVERTED}::int <= (select count(*) from payouts i
      where i.payer = g.payer and i.succeeded = false and i.updated_at > ${dayAgo(ctx)} and i.preempted is not true
        and not exists (select from transaction_attempts a where a.payout_id = coalesce(i.batch_id, i.id) and a.empty and a.hash = i.tx_hash)
        and not exists (select from payouts b where b.id = i.batch_id and b.succeeded = false))`.execute(ctx.db)
  return new Set(rows.map(row => row.payer))
}

const dayAgo = (ctx: TxContext): Date => new Date(ctx.now().getTime() - DAY_MS)

/** Whether a payer's relays failed too often; requests at the same time share one query. */
export const isFailing = async (ctx: Context, payer: Address): Promise<boolean> =>
  (await failuresOf(ctx, payer)) === true

const failuresOf = gatherBy(async (ctx: Context, payers: readonly Address[]): Promise<Map<Address, true>> => {
  const failing = await failingPayers(ctx, payers)
  return new Map([...failing].map(payer => [payer, true]))
})

type Call = Pick<Row<"payouts">, "id" | "payer">

/**
 * Returns the ids of due relays that wait because too many of their payer are in flight. {@link FIRST_IN_FLIGHT} may be,
 * and one more for each that succeeded in the last day, as TCP's slow start does it: what a payer can waste in a block
 * is at most what it paid for in a day and a few more, and a payer that pays has twice as many in flight in each block.
 *
 * @example
 *   // 32 due relays of a payer that is new: 8 are signed, 16 when these are mined, and then the rest.
 *   ;(await beyondFlight(ctx, network, due)).size // 24
 */
export async function beyondFlight(
  ctx: Context,
  { chainId }: Network,
  calls: readonly Call[],
): Promise<Set<Row<"payouts">["id"]>> {
  const byPayer = Map.groupBy(calls, ({ payer }) => payer)
  byPayer.delete(null)
  const given = [...byPayer].map(([payer, { length: due }]) => ({ payer, due }))
  if (given.length === 0) return new Set()
  const { rows } = await sql<{ payer: Address; room: number }>`
    /* named: payer_flights */ with flying as (select payer, count(*)::int as n from payouts
      where chain_id = ${chainId} and lane = 'relay' and state = 'assigned' and payer is not null group by payer)
    select g.payer, ${FIRST_IN_FLIGHT}::int - coalesce(f.n, 0) + (select count(*)::int from (select from payouts i
        where i.payer = g.payer and i.succeeded and i.updated_at > ${dayAgo(ctx)} limit ${MOST_IN_FLIGHT}) s) as room
    from (${givenRows(given, "payer text, due integer")}) g left join flying f on f.payer = g.payer
    where coalesce(f.n, 0) + g.due > ${FIRST_IN_FLIGHT}::int`.execute(ctx.db)
  const beyond = rows.flatMap(({ payer, room }) => byPayer.get(payer)?.slice(Math.max(0, room)) ?? [])
  return new Set(beyond.map(({ id }) => id))
}

/**
 * Asks the chain about relays that failed: whether another transaction had carried their authorizations out. Each is
 * asked about once, and again at the next change while no quorum answers: its end as final is one.
 */
export async function findPreempted(ctx: Context, network: Network): Promise<void> {
  const since = new Date(ctx.now().getTime() - ASKED_MS)
  const failed = await ctx.db
    .selectFrom("payouts")
    .select(["id", "token", "payer", "auth_nonce", "recipient", "amount", "block_number", "block_hash"])
    .where("chain_id", "=", network.chainId)
    .where("kind", "in", ["authorize", "settle"])
    .where("succeeded", "=", false)
    .where("preempted", "is", null)
    .where("updated_at", ">", since)
    .orderBy("updated_at", "desc")
    .limit(ASKED_AT_ONCE)
    .execute()
  await Promise.all(
    failed.map(async ({ id, token, payer, auth_nonce: nonce, recipient: payTo, amount, block_number, block_hash }) => {
      if (!payer || !nonce || block_number === null) return
      // It was unused when the relay was simulated, shortly before its block.
      const start = block_number < SEARCHED_BLOCKS ? 0n : block_number - SEARCHED_BLOCKS + 1n
      const use = await unlessSilent(findUse(ctx, network, { token, payer, nonce, payTo, amount }, start))
      if (use === undefined) return
      const preempted = use !== null && use !== "used" && use.blockNumber <= block_number
      await ctx.db
        .updateTable("payouts")
        .set({ preempted })
        .where("id", "=", id)
        .where("succeeded", "=", false)
        .where("block_hash", "=", block_hash)
        .execute()
    }),
  )
}
