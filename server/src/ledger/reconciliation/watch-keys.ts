/**
 * Watches for foreign use of the payout keys. A thief of one can call `release`, which pays a deposit's payees in wrong
 * proportions and emits no event of its own. But whatever he sends takes a nonce. Either the chain then counts more
 * transactions than this database signed, or none of ours can be mined at a nonce that was given and the chain has used.
 * The payout rounds compare both too, but only while something is due, and of final blocks: on some networks those are
 * a quarter of an hour old.
 *
 * A nonce is stored before anything is signed with it, and a signature before it is sent. So no transaction of ours is
 * ever ahead or unknown, whichever process sent it, if the database is read after the chain's count. An endpoint that
 * lags reports fewer. Only a wrong answer could be ahead, and one reading halts nothing: two looks in a row must find
 * the same. They are {@link LASTING_MS} apart where the network has one endpoint. They are also where receipts
 * are missing, because a reorg and a late index of transactions look the same for some seconds.
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

/** Twice as long as the payout wallet of a running process goes unobserved (`txmanager/run-round.ts`). */
const SERVED_MS = 7_200_000
/** With the 20 s until the first look and 5 s between looks, a halt still comes within a minute. */
const LASTING_MS = 20_000

/** What a look found. `nonce`: the lowest that an unknown transaction used; undefined where the count is ahead. */
interface Finding {
  nonce: bigint | undefined
  words: string
}

/** A finding that is not confirmed, and when a look in a row first had it, in Unix ms. */
type Suspicion = Pick<Finding, "nonce"> & { since: number }

/** What this process's last look found, by the wallets' ids. */
const suspicions = new WeakMap<Network, ReadonlyMap<number, Suspicion>>()

/**
 * Compares the transactions of the payout wallets with what this database signed; returns whether a quorum reports all
 * that this needs. `own`: this process's wallet.
 */
export async function watchKeys(ctx: Context, network: Network, own: Address): Promise<boolean> {
  const last = suspicions.get(network)
  // Of the wallets of this look alone: what was suspected of a wallet before a person resumed it proves nothing.
  const next = new Map<number, Suspicion>()
  suspicions.set(network, next)
  const wallets = await watchedWallets(ctx, network, own)
  // An empty question would count as an answer of endpoints that failed.
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

/** Looks again for what the last look found. It needs no lease: another process may not have seen it. */
export async function confirmSuspects(ctx: Context, network: Network, own: Address): Promise<void> {
  if ((suspicions.get(network)?.size ?? 0) > 0) await watchKeys(ctx, network, own)
}

/** Halts the wallet if the finding is confirmed; else returns what the next look must confirm. */
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
 * Returns what the chain has of a wallet and this database did not sign, if anything. `count`: its transactions, as a
 * quorum reported them a moment ago. `unread` where a quorum does not say enough.
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
  // Mostly none: a payout round notices within seconds that its transactions are mined.
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
 * One process watches for all, so these are the payout wallets that any process serves, of any factory. What a wallet
 * does that nobody serves any more, such as sending its ether on, is no theft.
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
