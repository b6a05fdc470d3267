/**
 * Finishes the payouts that an earlier wallet of a lane signed before another wallet replaced it. The work needs no
 * key: a receipt confirms each payout, and until then the same bytes are sent again. A release fails on chain if its
 * signer is no longer the factory's operator. Once the failure is final, the new wallet makes the release again. No
 * payout ends before a block has used its nonce. Otherwise the guardian could name the old wallet again, and the
 * wallet's signed transactions would succeed.
 */
import { sql } from "kysely"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { withLease } from "../../platform/jobs/claim.ts"
import { type Confirmed, confirmPayouts } from "./confirm-attempts.ts"
import type { Lane } from "./lane.ts"
import { haltAhead, walletRow } from "./lock-wallet.ts"
import { type Pace, sendAttempts } from "./send-attempts.ts"

/** Usually longer than all requests for one wallet take together. */
const LEASE_MS = 30_000

/**
 * Confirms what the lane's earlier wallets signed for this factory. Also sends the rest again, unless the current
 * wallet is halted.
 */
export async function finishEarlier(ctx: Context, lane: Lane, current: Row<"wallets">, pace: Pace): Promise<Confirmed> {
  const all: Confirmed = { changed: 0, looked: [] }
  for (const { id, run_at: nextRunAt } of await earlierWallets(ctx, lane, current)) {
    const now = ctx.now()
    const job = { table: "wallets", only: id, leaseMs: LEASE_MS, now, nextRunAt } as const
    // A process that still has the earlier wallet's key may be working on this wallet.
    await withLease(ctx.db, job, async earlier => {
      // Receipts are read after the counts, so that they are never older than the counts.
      const state = await readWalletState(lane.chain, earlier.address, ctx.signal)
      const quorum = await openQuorum(lane.chain, 0n, ctx.signal)
      await haltAhead(ctx, lane.chain, earlier, state.agreedFinalized)
      const { changed, looked } = await confirmPayouts(ctx, lane, earlier, quorum, state)
      all.changed += changed
      all.looked.push(...looked)
      if ((await walletRow(ctx, current)).status === "halted") return
      const { status } = await walletRow(ctx, earlier)
      if (status === "active" || (await lane.canOnlyFail(ctx, earlier, quorum.finalized)))
        await (await sendAttempts(ctx, lane.chain, earlier, state, pace, { evenHalted: true }))?.noted
    })
  }
  return all
}

/**
 * Returns the earlier wallets that have assigned or mined payouts. A wallet of another factory is left to the process
 * that has that wallet's key.
 */
async function earlierWallets(
  ctx: Context,
  lane: Lane,
  current: Row<"wallets">,
): Promise<Pick<Row<"wallets">, "id" | "run_at">[]> {
  return await ctx.db
    .selectFrom("wallets as w")
    .select(["w.id", "w.run_at"])
    .where("w.chain_id", "=", current.chain_id)
    .where("w.lane", "=", current.lane)
    .where("w.id", "<>", current.id)
    .where(
      sql<boolean>`exists (select from payouts where payouts.chain_id = w.chain_id and payouts.wallet = w.address
        and payouts.state in ('assigned', 'mined') and ${lane.ours(sql`w.address`)})`,
    )
    .orderBy("w.id")
    .execute()
}
