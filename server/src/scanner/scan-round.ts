/**
 * The verification of one network: each round looks at the chain, stores what was seen in one transaction, and settles
 * what is confirmed.
 *
 * What is evidence is what as many endpoints as must agree say (`agreement.ts`): a log, whole; that its block is canonical
 * when it is confirmed and again when it becomes final; a receipt; that another block stands at a transfer's height while
 * the log is nowhere. On no evidence nothing changes, and it is tried again.
 */
import type { Network } from "../chain/networks.ts"
import { openQuorum } from "../chain/quorum.ts"
import { RpcError } from "../chain/rpc.ts"
import { type Context, inTransaction } from "../context.ts"
import { withLease } from "../jobs/claim.ts"
import { unixMs } from "../tracing/trace.ts"
import { observeChain } from "./observe-chain.ts"
import { recordObservation } from "./record-observation.ts"
import { logLag } from "./scan-lag.ts"
import { learnTokens } from "./tokens.ts"

/** Longer than the requests of a round and its settling can take together. A worker that hangs loses the network then. */
const LEASE_MS = 90_000

/**
 * One round for one network: scans, then runs `settle` under the same lease. A no-op when the network is not due or another
 * process holds the lease.
 */
export async function scanRound(ctx: Context, network: Network, settle: () => Promise<void>): Promise<void> {
  const now = ctx.now()
  // Due again before the work begins: a submission in the middle of it brings that forward, and is not overwritten.
  const nextRunAt = new Date(now.getTime() + ctx.settings.verifyIntervalMs)
  const job = { table: "cursors", only: network.chainId, leaseMs: LEASE_MS, now, nextRunAt } as const
  const startMs = unixMs()
  await withLease(ctx.db, job, async cursor => {
    const observation = await observeChain(ctx, network, cursor)
    const ended = await inTransaction(ctx, ctx => recordObservation(ctx, network, observation, startMs))
    await logLag(ctx, network, cursor)
    if (ended) await ctx.wakes.wake("payments")
    await learnTokens(ctx, network)
    await settle()
  })
}

/** Starts the scan of a network at its present head; must be done before any of its addresses is shown. */
export async function ensureCursor(ctx: Context, network: Network): Promise<void> {
  const there = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  if (there) return
  // According to a quorum: a scan that begins far beyond the chain would never see what is paid until then.
  const quorum = await openQuorum(network, 0n, ctx.signal)
  await quorum.learn([quorum.head], [])
  const block = quorum.blockAt(quorum.head)?.block
  if (!block) throw new RpcError(`${network.name}: the endpoints do not agree on a head`)
  const at = { block_number: block.number, block_hash: block.hash, block_time: block.time }
  const row = { chain_id: network.chainId, ...at, finalized_number: 0n }
  await ctx.db
    .insertInto("cursors")
    .values({ ...row, run_at: ctx.now() })
    .onConflict(conflict => conflict.doNothing())
    .execute()
}

/** How long until the network is due again, in milliseconds. */
export async function msUntilDue(ctx: Context, network: Network): Promise<number> {
  const row = await ctx.db
    .selectFrom("cursors")
    .select("run_at")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  return row ? Math.max(0, row.run_at.getTime() - ctx.now().getTime()) : 0
}
