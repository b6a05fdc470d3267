/**
 * Compares the logs of new finalized blocks with the rows, hourly, for each payout wallet. A transfer that no payout
 * explains, a payout that was paid twice, a final payout that never left, a row that contradicts its receipt: each
 * halts the wallets.
 *
 * The comparison holds the wallet's lease, as a payout round does, so the payout engine signs nothing for the wallet
 * between the comparison and the halt. The lease may expire while a slow endpoint responds. The halt is safe even then:
 * it updates the wallet's row, and code that gives nonces locks that row until the commit and reads the status under
 * the lock. So a nonce is given before the halt, or not at all; and nothing of a halted wallet is broadcast.
 */
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { openQuorum } from "../chain/quorum.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { isDue, withLease } from "../jobs/claim.ts"
import { followGivenBack } from "../settlement/end-given-back.ts"
import { compareLogs } from "./compare-logs.ts"
import { haltPayoutWallets, reportUnproven } from "./report.ts"

const HOUR_MS = 3_600_000
/** The longest sleep: a new or resumed wallet is compared within a minute. */
const IDLE_MS = 60_000
/**
 * The wait after a comparison that could not finish, so that an endpoint does not get the same requests again at once.
 */
const RETRY_MS = 60_000
/**
 * The wait while a payout round holds the lease. The round leaves the lease free for longer than this before the next.
 */
const LEASE_TAKEN_MS = 250
/** As long as a payout round's lease, so that payouts wait no longer when this process dies. */
const LEASE_MS = 30_000
const WINDOWS_PER_CHECK = 50

/** Compares once a payout wallet's hour is over; returns how many milliseconds the next call may wait. */
export async function checkBooks(ctx: Context, network: Network, address: Address): Promise<number> {
  const wallet = await ctx.db
    .selectFrom("wallets")
    .selectAll()
    .where("chain_id", "=", network.chainId)
    .where("address", "=", address)
    .executeTakeFirst()
  const waitMs = wallet ? msUntilDue(ctx, wallet) : IDLE_MS
  if (!wallet || waitMs > 0) return waitMs
  const now = ctx.now()
  // `run_at` is when a payout round last ran, so the comparison leaves it as it is.
  const job = { table: "wallets", only: wallet.id, leaseMs: LEASE_MS, now, nextRunAt: wallet.run_at } as const
  let nextMs = LEASE_TAKEN_MS
  await withLease(ctx.db, job, async claimed => {
    // Another process may have compared or halted since the row was read.
    nextMs = msUntilDue(ctx, claimed) || (await compareNewBlocks(ctx, network, claimed))
  })
  return Math.min(IDLE_MS, nextMs)
}

/** 0 when the wallet's comparison is due. A halted wallet is not compared until a person resumes it. */
function msUntilDue(ctx: Context, { status, check_at: dueAt }: Row<"wallets">): number {
  if (status === "halted") return IDLE_MS
  if (dueAt === null || isDue(dueAt, ctx.now(), HOUR_MS)) return 0
  return Math.min(IDLE_MS, dueAt.getTime() - ctx.now().getTime())
}

/** Compares from the last block that was compared; returns how many milliseconds the next comparison may wait. */
async function compareNewBlocks(ctx: Context, network: Network, wallet: Row<"wallets">): Promise<number> {
  const startedAt = ctx.now()
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("block_number")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  const quorum = await openQuorum(network, cursor?.block_number ?? 0n, ctx.signal)
  const deposits = await ctx.db
    .selectFrom("deposits")
    .select(["id", "address", "factory", "owner", "approver", "open_after_s", "merchant_id"])
    .where("chain_id", "=", network.chainId)
    .execute()
  let from = wallet.checked_number === null ? quorum.finalized : wallet.checked_number + 1n
  let nextMs: number | undefined
  for (let windows = 0; from <= quorum.finalized && windows < WINDOWS_PER_CHECK; windows++) {
    const range = network.endpoints.reduce((low, { logRange }) => (logRange < low ? logRange : low), 10_000n)
    const end = from + range - 1n
    const to = end < quorum.finalized ? end : quorum.finalized
    const { finding, unproven } = await compareLogs(ctx, network, quorum, deposits, { from, to })
    if (finding) {
      await haltPayoutWallets(ctx, network, finding.words)
      return IDLE_MS
    }
    if (unproven !== undefined) {
      reportUnproven(ctx, network, unproven, { from: `${from}` })
      nextMs = RETRY_MS
      break
    }
    // Not fenced by the claim: these blocks stay compared when the lease has expired.
    await ctx.db.updateTable("wallets").set({ checked_number: to }).where("id", "=", wallet.id).execute()
    from = to + 1n
  }
  await followGivenBack(ctx, network)
  nextMs ??= from > quorum.finalized ? HOUR_MS : 0
  const check_at = new Date(startedAt.getTime() + nextMs)
  await ctx.db.updateTable("wallets").set({ check_at }).where("id", "=", wallet.id).execute()
  return nextMs
}
