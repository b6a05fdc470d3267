/**
 * Watches whether someone else uses the payout keys. A thief with a key can call `release`, which pays a deposit's
 * payees in wrong proportions and emits no event of its own. But every transaction of the thief takes a nonce. Then
 * either the chain counts more transactions than this database signed, or a transaction that is not ours used a nonce
 * that was assigned here. The payout rounds compare both too, but only while a payout is due, and only for final
 * blocks. On some networks, final blocks are a quarter of an hour old.
 *
 * A nonce is stored before signing, and a signature before sending. So if the database is read after the chain's count,
 * no transaction of ours is ahead or unknown. An endpoint that lags reports fewer transactions. A count that is ahead
 * may still be a wrong answer, so one reading halts nothing: two checks in a row must agree. With one endpoint, these
 * two checks are {@link LASTING_MS} apart. The same holds for missing receipts, because a reorg or a late transaction
 * index can hide a receipt for some seconds.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { unlessSilent } from "../../platform/chain/rpc.ts"
import { quorumOf, readCounts } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { fewerSigned, haltAhead, haltWallet } from "../txmanager/lock-wallet.ts"
import { readOpenPayouts } from "../txmanager/read-open-transactions.ts"

/** Twice as long as a running process may leave its payout wallet unobserved (`txmanager/run-round.ts`). */
const SERVED_MS = 7_200_000
/** With 20 s until the first check and 5 s between checks, the halt still comes within a minute. */
const LASTING_MS = 20_000

/**
 * The result of a check. `nonce` is the lowest nonce that an unknown transaction used. If the count is ahead, `nonce`
 * is undefined.
 */
interface Finding {
  nonce: bigint | undefined
  words: string
}

/** A finding that is not confirmed yet, and when the first of a series of checks made it, in Unix ms. */
type Suspicion = Pick<Finding, "nonce"> & { since: number }

/** The findings of this process's last check, by wallet id. */
const suspicions = new WeakMap<Network, ReadonlyMap<number, Suspicion>>()

/**
 * Compares the payout wallets' transactions with what this database signed. Returns whether a quorum reports everything
 * that the check needs. `own` is this process's wallet.
 */
export async function watchKeys(ctx: Context, network: Network, own: Address): Promise<boolean> {
  const last = suspicions.get(network)
  // Keeps only the wallets of this check, because a suspicion from before a person resumed a wallet proves nothing.
  const next = new Map<number, Suspicion>()
  suspicions.set(network, next)
  const wallets = await watchedWallets(ctx, network, own)
  // An empty request would count as an answer from endpoints that failed.
  if (wallets.length === 0) return true
  const counts = await readCounts(
    network,
    wallets.map(({ address }) => address),
    ctx.signal,
  )
  let areRead = true
  for (const [i, wallet] of wallets.entries()) {
    const before = last?.get(wallet.id)
    const count = counts[i]
    const found = count === undefined ? "unread" : await findForeign(ctx, network, wallet, count)
    if (found === "unread") {
      areRead = false
      if (before) next.set(wallet.id, before)
    } else if (found) {
      const suspicion = await judge(ctx, network, wallet, { before, found, count: count as bigint })
      if (suspicion) next.set(wallet.id, suspicion)
    }
  }
  return areRead
}

/**
 * Checks the last check's findings again. The check needs no lease, because other processes may not have these
 * findings.
 */
export async function confirmSuspects(ctx: Context, network: Network, own: Address): Promise<void> {
  if ((suspicions.get(network)?.size ?? 0) > 0) await watchKeys(ctx, network, own)
}

/** Halts the wallet if the finding is confirmed. Otherwise returns the suspicion that the next check must confirm. */
async function judge(
  ctx: Context,
  network: Network,
  wallet: Row<"wallets">,
  { before, found, count }: { before: Suspicion | undefined; found: Finding; count: bigint },
): Promise<Suspicion | undefined> {
  const now = ctx.now().getTime()
  const { nonce, words } = found
  if (before?.nonce !== nonce || !before) {
    ctx.log.warn({ network: network.name, wallet: wallet.address, found: words }, "a payout key may be used elsewhere")
    return { nonce, since: now }
  }
  const mustLast = nonce !== undefined || quorumOf(network) === 1
  if (mustLast && now - before.since < LASTING_MS) return before
  if (nonce === undefined) await haltAhead(ctx, network, wallet, count)
  else await haltWallet(ctx, network, wallet, "foreign_nonce", words)
  return undefined
}

/**
 * Returns the transactions of a wallet that the chain has and this database did not sign, if there are any. `count` is
 * the wallet's transaction count that a quorum just reported. `unread` means that no quorum reports enough.
 */
async function findForeign(
  ctx: Context,
  network: Network,
  wallet: Row<"wallets">,
  count: bigint,
): Promise<Finding | "unread" | undefined> {
  const signed = await fewerSigned(ctx, wallet, count)
  if (signed !== undefined)
    return { nonce: undefined, words: `${count} transactions on chain, and ${signed} that were signed` }
  // This list is usually empty, because a payout round notices within seconds that its transactions are mined.
  const open = await readOpenPayouts(ctx, wallet, "", sql`i.state = 'assigned' and i.nonce < ${count}`)
  if (open.length === 0) return undefined
  const quorum = await unlessSilent(openQuorum(network, 0n, ctx.signal))
  if (!quorum) return "unread"
  await quorum.learn(
    [],
    open.flatMap(({ hashes }) => hashes),
  )
  const foreign = open
    .filter(({ hashes }) => hashes.every(hash => quorum.receiptOf(hash) === null))
    .reduce<bigint | undefined>((low, { nonce }) => (low === undefined || nonce < low ? nonce : low), undefined)
  if (foreign !== undefined)
    return { nonce: foreign, words: `nonce ${foreign} was used by a transaction that this database does not know` }
  return open.every(({ hashes }) => hashes.some(hash => quorum.receiptOf(hash))) ? undefined : "unread"
}

/**
 * Returns the payout wallets that any process serves, for any factory, because one process watches all of them. A
 * wallet that nobody serves any more may send its ether on, which is no theft.
 */
async function watchedWallets({ db, now }: Context, { chainId }: Network, own: Address): Promise<Row<"wallets">[]> {
  return await db
    .selectFrom("wallets")
    .selectAll()
    .where("chain_id", "=", chainId)
    .where("lane", "=", "payout")
    .where("status", "=", "active")
    .where(({ or, eb }) => or([eb("address", "=", own), eb("run_at", ">", new Date(now().getTime() - SERVED_MS))]))
    .execute()
}
