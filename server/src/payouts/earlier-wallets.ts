/**
 * Finishes the payouts that an earlier wallet of a lane had signed before another replaced it. This needs no key: a
 * receipt confirms each payout, and until there is one its bytes are sent again. A release signed by a wallet that is
 * no longer the factory's operator fails on chain; once that is final, the new wallet makes it again. No payout ends
 * before a block has used its nonce: the guardian may name the old wallet again, and the transactions that it signed
 * would then succeed.
 */
import { sql } from "kysely"
import { encodeFunctionData } from "viem"
import { depositFactoryAbi } from "../chain/abi.ts"
import { parseAddress } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { openQuorum } from "../chain/quorum.ts"
import { hexNumber } from "../chain/rpc.ts"
import { quorumOf, readWalletState } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { withLease } from "../jobs/claim.ts"
import { type Confirmed, confirmPayouts } from "./confirm-payouts.ts"
import { policies } from "./lane-policy.ts"
import { type Pace, sendAttempts } from "./send-attempts.ts"
import { askEach } from "./trials.ts"
import { haltAhead, walletRow } from "./wallet-row.ts"

/** Longer than all requests for one wallet take together, in most cases. */
const LEASE_MS = 30_000

/**
 * Confirms what the earlier wallets of a wallet's lane signed for this factory, and sends the rest of it again unless
 * the wallet itself is halted.
 */
export async function finishEarlier(
  ctx: Context,
  network: Network,
  current: Row<"wallets">,
  pace: Pace,
): Promise<Confirmed> {
  const all: Confirmed = { changed: 0, looked: [] }
  for (const { id, run_at: nextRunAt } of await earlierWallets(ctx, network, current)) {
    const now = ctx.now()
    const job = { table: "wallets", only: id, leaseMs: LEASE_MS, now, nextRunAt } as const
    // A process that still has the earlier wallet's key may be working on it.
    await withLease(ctx.db, job, async earlier => {
      // Receipts are read after the counts, so they are never older.
      const state = await readWalletState(network, earlier.address, ctx.signal)
      const quorum = await openQuorum(network, 0n, ctx.signal)
      await haltAhead(ctx, network, earlier, state.agreedFinalized)
      const { changed, looked } = await confirmPayouts(ctx, network, earlier, quorum, state)
      all.changed += changed
      all.looked.push(...looked)
      if ((await walletRow(ctx, current)).status === "halted") return
      const { status } = await walletRow(ctx, earlier)
      if (status === "active" || (await canOnlyFail(ctx, network, earlier, quorum.finalized)))
        await (await sendAttempts(ctx, network, earlier, state, pace, { evenHalted: true }))?.noted
    })
  }
  return all
}

/**
 * The earlier wallets with payouts that are assigned or mined. A wallet of another factory is left to the process that
 * has its key.
 */
async function earlierWallets(
  ctx: Context,
  network: Network,
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
        and payouts.state in ('assigned', 'mined') and ${policies[current.lane].ours(network, sql`w.address`)})`,
    )
    .orderBy("w.id")
    .execute()
}

/**
 * Whether no transaction that a halted wallet has in flight can pay twice. A quorum reports that at the final block the
 * factory obeys another wallet, so the halted one's releases fail. The contract carries out a merchant's approval once,
 * whoever sends it.
 */
async function canOnlyFail(
  ctx: Context,
  network: Network,
  { chain_id, lane, address }: Row<"wallets">,
  finalized: bigint,
): Promise<boolean> {
  if (lane !== "payout") return false
  const elsewhere = await ctx.db
    .selectFrom("payouts")
    .select("id")
    .where("chain_id", "=", chain_id)
    .where("wallet", "=", address)
    .where("state", "in", ["assigned", "mined"])
    .where("to_address", "<>", network.depositFactory)
    .executeTakeFirst()
  if (elsewhere) return false
  const data = encodeFunctionData({ abi: depositFactoryAbi, functionName: "operator" })
  const call = { method: "eth_call", params: [{ to: network.depositFactory, data }, hexNumber(finalized)] }
  const answers = await askEach(network, [call], ctx.signal)
  const others = answers.filter(results => {
    const [result] = results ?? []
    const operator = parseAddress(`0x${result?.ok && typeof result.value === "string" ? result.value.slice(26) : ""}`)
    return operator !== undefined && operator !== address
  })
  return others.length >= quorumOf(network)
}
