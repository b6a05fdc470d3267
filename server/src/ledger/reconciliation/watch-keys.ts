/**
 * Watches for foreign use of the payout keys. A thief of one can call `release`, which pays a deposit's payees in wrong
 * proportions and emits no event of its own. But whatever he sends takes a nonce, so the chain then counts more
 * transactions than this database signed. The payout rounds compare that too, but only while something is due, and of
 * final blocks: on some networks those are a quarter of an hour old.
 *
 * A nonce is stored before anything is signed with it, so no transaction of ours is ever ahead, whichever process sent
 * it, and a reorg changes nothing about that. An endpoint that lags reports fewer. Only a wrong answer could be ahead,
 * and one reading of a network's only endpoint halts nothing: the count must be ahead twice, at two looks.
 */
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { readCounts } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { fewerSigned, haltAhead } from "../txmanager/lock-wallet.ts"

/** Twice as long as the payout wallet of a running process goes unobserved (`txmanager/run-round.ts`). */
const SERVED_MS = 7_200_000

/** The wallets whose counts were ahead at this process's last look, by their ids. */
const suspects = new WeakMap<Network, Set<number>>()

/**
 * Compares the counts of the payout wallets with what this database signed; returns whether a quorum reports all of
 * them. `own`: this process's wallet.
 */
export async function watchKeys(ctx: Context, network: Network, own: Address): Promise<boolean> {
  const suspected = suspects.get(network) ?? new Set()
  suspects.set(network, suspected)
  const wallets = await watchedWallets(ctx, network, own)
  const counts = await readCounts(
    network,
    wallets.map(({ address }) => address),
    ctx.signal,
  )
  for (const [i, wallet] of wallets.entries()) {
    const count = counts[i]
    if (count === undefined) continue
    const signed = await fewerSigned(ctx, wallet, count)
    if (signed === undefined) suspected.delete(wallet.id)
    else if (suspected.delete(wallet.id)) await haltAhead(ctx, network, wallet, count)
    else {
      suspected.add(wallet.id)
      const facts = { network: network.name, wallet: wallet.address, count: `${count}`, signed: `${signed}` }
      ctx.log.warn(facts, "the chain has more transactions of the payout wallet than were signed; it is asked again")
    }
  }
  return counts.every(count => count !== undefined)
}

/** Compares again what was ahead at the last look. It needs no lease: another process may not have seen it. */
export async function confirmSuspects(ctx: Context, network: Network, own: Address): Promise<void> {
  if ((suspects.get(network)?.size ?? 0) > 0) await watchKeys(ctx, network, own)
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
