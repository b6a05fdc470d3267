/**
 * Asks the chain about failed relays: did another transaction execute the authorization first? If so, the payer paid,
 * and the failure does not count against the payer.
 */
import { sql } from "kysely"
import { endpointCopies } from "../../platform/chain/endpoints.ts"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { unlessSilent } from "../../platform/chain/rpc.ts"
import type { Context } from "../../platform/context.ts"
import { kindsThat } from "../../platform/db/by-kind.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { DOUBTED_MS, UNEXPLAINED_MS } from "./check-payer-limits.ts"
import { findUse, SEARCHED_BLOCKS } from "./find-use.ts"

/** For how many failed relays one round queries the chain, one by one. Each relay takes a few RPC requests. */
const ASKED_AT_ONCE = 10
/** The least time between two requests about one relay. */
const AGAIN_MS = 5_000
/** The wait before the next round if no relay failed recently. */
const IDLE_MS = 60_000
/** No supported network makes more blocks per second than this. */
const BLOCKS_A_SECOND = 4

type Failed = Pick<
  Row<"payouts">,
  | ("id" | "token" | "payer" | "auth_nonce" | "recipient" | "amount" | "tx_hash" | "block_number" | "block_hash")
  | ("created_at" | "updated_at")
>

/**
 * The rounds use their own copies of the endpoints. If an endpoint hangs on log requests here, the relay wallet's
 * rounds must still use it.
 */
const ownCopy = endpointCopies()

/** When the chain was last queried about each relay, by this process's clock. */
const asked = new Map<string, number>()

/**
 * Runs one round, and returns how many milliseconds the next round may wait. `againMs` is the least time between two
 * requests about one relay.
 */
export async function findPreempted(ctx: Context, network: Network, againMs = AGAIN_MS): Promise<number> {
  const now = performance.now()
  for (const [id, at] of asked) if (at <= now - againMs) asked.delete(id)
  const failed = await unexplained(ctx, network, [...asked.keys()])
  for (const { id } of failed) asked.set(id, now)
  const apart = { ...network, endpoints: network.endpoints.map(ownCopy) }
  for (const relay of failed) await explain(ctx, apart, relay)
  if (failed.length === ASKED_AT_ONCE) return 0
  return asked.size > 0 ? againMs : IDLE_MS
}

/** Returns failed relays. Relays about which the chain was never queried come first. */
async function unexplained(ctx: Context, { chainId }: Network, except: readonly string[]): Promise<Failed[]> {
  const ago = (ms: number) => new Date(ctx.now().getTime() - ms)
  const { rows } = await sql<Failed>`/* named: unexplained_relays */
    select id, token, payer, auth_nonce, recipient, amount, tx_hash, block_number, block_hash, created_at, updated_at from payouts
    where chain_id = ${chainId} and kind in ${kindsThat(({ isPublic }) => isPublic)} and succeeded = false and preempted is not true
      and updated_at > ${ago(UNEXPLAINED_MS)} and (preempted is null or updated_at > ${ago(DOUBTED_MS)})
      and id <> all(${sqlArray("uuid", except)})
    order by preempted nulls first, updated_at desc limit ${ASKED_AT_ONCE}`.execute(ctx.db)
  return rows
}

/** Writes whether a failed relay was preempted, and writes nothing if that is unknown. */
async function explain(ctx: Context, network: Network, relay: Failed): Promise<void> {
  const { id, token, payer, auth_nonce: nonce, recipient: payTo, amount, block_number: block, tx_hash: hash } = relay
  if (!payer || !nonce || block === null || hash === null) return
  // The authorization was still unused when the relay was simulated. A relay with a low fee may take hours to be mined.
  const seconds = (relay.updated_at.getTime() - relay.created_at.getTime()) / 1_000
  const back = BigInt(Math.ceil(seconds * BLOCKS_A_SECOND)) + SEARCHED_BLOCKS
  const use = await unlessSilent(
    findUse(ctx, network, { token, payer, nonce, payTo, amount }, block > back ? block - back : 0n),
  )
  if (use === undefined) return
  const isOurs = use !== null && use !== "used"
  const preempted =
    isOurs && (use.blockNumber === block ? await isBefore(ctx, network, use, hash) : use.blockNumber < block)
  if (preempted === undefined) return
  await ctx.db
    .updateTable("payouts")
    .set({ preempted })
    .where("id", "=", id)
    .where("succeeded", "=", false)
    .where("block_hash", "=", relay.block_hash)
    .execute()
}

/**
 * Whether a transaction precedes another in its block. If a payer makes its relay burn the gas and uses the
 * authorization only afterwards, the payer has not paid first.
 */
async function isBefore(
  ctx: Context,
  network: Network,
  { position }: { position: number | undefined },
  hash: Hash,
): Promise<boolean | undefined> {
  const quorum = await unlessSilent(openQuorum(network, 0n, ctx.signal))
  await quorum?.learn([], [hash])
  const other = quorum?.receiptOf(hash)?.position
  return position === undefined || other === undefined ? undefined : position < other
}
