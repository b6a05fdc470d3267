/**
 * Verifies one network: each round reads the chain, stores what it found in one transaction, and settles what is
 * confirmed. Evidence is what a quorum of endpoints reports (`agreement.ts`): a whole log, a receipt, or a missing log
 * with another block at its height. A block must be canonical when its transfers are confirmed, and again when they
 * become final. Without evidence nothing changes, and the next round tries again.
 */
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import { withLease } from "../../platform/jobs/claim.ts"
import { unixMs } from "../../platform/tracing/trace.ts"
import type { SellingContext } from "../settlement/sellable.ts"
import { learnTokens } from "./learn-tokens.ts"
import { observeChain } from "./observe-chain.ts"
import { verifySoon } from "./queries.ts"
import { recordObservation } from "./record-observation.ts"
import { logLag } from "./watch-scan-lag.ts"

/** Longer than a round's requests and its settlement take. A worker that hangs longer loses the network. */
const LEASE_MS = 90_000

/**
 * Runs one round for one network: scans, then runs `settle` under the same lease. Does nothing if the network is not
 * due or another process holds the lease.
 */
export async function scanRound(ctx: SellingContext, network: Network, settle: () => Promise<void>): Promise<void> {
  const now = ctx.now()
  // The next round is scheduled before the work starts. A submission during the work can then bring the next round
  // forward, and nothing overwrites that time.
  const nextRunAt = new Date(now.getTime() + ctx.settings.verifyIntervalMs)
  const job = { table: "cursors", only: network.chainId, leaseMs: LEASE_MS, now, nextRunAt } as const
  const startMs = unixMs()
  await withLease(ctx.db, job, async cursor => {
    const observation = await observeChain(ctx, network, cursor)
    const { ended, isMore } = await inTransaction(ctx, ctx => recordObservation(ctx, network, observation, startMs))
    await logLag(ctx, network, cursor)
    if (ended.length > 0) await ctx.wakes.wake("payments", ended)
    if (isMore) await verifySoon(ctx, network.chainId)
    await learnTokens(ctx, network)
    await settle()
  })
}

/**
 * Brings the next round forward so that it is at most one interval away. A process with a longer interval, before a
 * restart or in parallel, may have scheduled the round later.
 */
export async function withinInterval(ctx: Context, { chainId }: Network): Promise<void> {
  const run_at = new Date(ctx.now().getTime() + ctx.settings.verifyIntervalMs)
  await ctx.db
    .updateTable("cursors")
    .set({ run_at })
    .where("chain_id", "=", chainId)
    .where("run_at", ">", run_at)
    .execute()
}

/** Starts the scan of a network at its current head. Call this before any of the network's addresses is shown. */
export async function ensureCursor(ctx: Context, network: Network): Promise<void> {
  const there = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  if (there) return
  // A quorum determines the head, because a scan that starts far beyond the chain would never see earlier payments.
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

/** Returns how long until the network is due again, in milliseconds. */
export async function msUntilDue(ctx: Context, network: Network): Promise<number> {
  const row = await ctx.db
    .selectFrom("cursors")
    .select("run_at")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  return row ? Math.max(0, row.run_at.getTime() - ctx.now().getTime()) : 0
}
