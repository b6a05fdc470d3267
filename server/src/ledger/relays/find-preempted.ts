/**
 * Asks the chain about failed relays: did another transaction execute their authorizations first? If so, their payers
 * paid, and the failures do not count against them.
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

/** How many failed relays one round asks the chain about, one by one; each takes a few RPC requests. */
const ASKED_AT_ONCE = 10
/** The least time between two requests about one relay. */
const AGAIN_MS = 5_000
/** The wait before the next round if no relay failed lately. */
const IDLE_MS = 60_000
/** More blocks per second than any supported network makes. */
const BLOCKS_A_SECOND = 4

type Failed = Pick<
  Row<"payouts">,
  | ("id" | "token" | "payer" | "auth_nonce" | "recipient" | "amount" | "tx_hash" | "block_number" | "block_hash")
  | ("created_at" | "updated_at")
>

/** An endpoint that hangs on logs must not be silenced for the relay wallet's rounds. */
const ownCopy = endpointCopies()

/** When each relay was last asked about, by this process's clock. */
const asked = new Map<string, number>()

/** Runs one round; returns how many milliseconds the next may wait. `againMs`: least time between two requests. */
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

/** Returns failed relays, those never asked about first. */
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

/** Writes whether a failed relay was preempted; writes nothing if that is unknown. */
async function explain(ctx: Context, network: Network, relay: Failed): Promise<void> {
  const { id, token, payer, auth_nonce: nonce, recipient: payTo, amount, block_number: block, tx_hash: hash } = relay
  if (!payer || !nonce || block === null || hash === null) return
  // The authorization was unused when the relay was simulated. A relay at a low fee may take hours to be mined.
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
 * Whether a transaction precedes another in its block. A payer that makes its relay burn the gas and uses the
 * authorization after it has not paid first.
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
