/**
 * Watches for thefts that use the key of the payout wallet. If the service is a deposit's approver, its factory's
 * operator can send the money to anyone, without a signature. The factory reports such a transfer in the same
 * transaction (`GivenBack`). So one request per range of blocks covers all deposits, whatever strangers send to these
 * deposits. A report about a transaction that this database did not sign halts the payout wallets. The hourly
 * comparison would halt the wallets too, but only for final blocks. On some networks, final blocks are a quarter of an
 * hour old. Any use of the key without such an event shows in the wallet's nonces. The same round reads these nonces
 * (`watch-keys.ts`).
 *
 * The watch reads blocks that are not final. A reorg can remove a thief's transaction, but not the fact that someone
 * else signed it. Only the comparison writes the books.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { withLease } from "../../platform/jobs/claim.ts"
import { bringBack } from "../deposits/put-away.ts"
import { depositsNamed } from "./list-compared-deposits.ts"
import { notedOutflows, noticedAmong } from "./note-outflows.ts"
import { type Given, givenBackFrom } from "./read-given-back.ts"
import { haltPayoutWallets, reportUnproven } from "./report.ts"
import { confirmSuspects, watchKeys } from "./watch-keys.ts"

/**
 * How often the blocks are read. Even with the scan's interval and a failed round, a theft is known within a minute.
 */
const EVERY_MS = 20_000
/**
 * How often a process checks whether the watch is due. The interval is also how much later a process takes over from a
 * dead one.
 */
const LOOK_MS = 5_000
const LEASE_MS = 60_000
/** How many blocks are read again, because nodes index logs late and shallow reorgs move the logs. */
const RESCAN_BLOCKS = 20n
/** The most block ranges that a round reads. After downtime, the blocks are read over several rounds. */
const RANGES_PER_ROUND = 20
/** How long blocks may stay unread before they are reported. */
const UNREAD_MS = 60_000
const DISAGREED = "endpoints do not answer, or do not agree on what was given back"
const UNWATCHED = "endpoints do not answer, or do not agree on the payout wallet's transactions"

type Watch = Row<"outflow_watches">

/**
 * Runs one round if it is due, and returns how many milliseconds the next round may wait. `wallet` is the payout
 * wallet.
 */
export async function watchOutflows(ctx: Context, network: Network, wallet: Address): Promise<number> {
  await confirmSuspects(ctx, network, wallet)
  // The outflows of a halted wallet are read after a person has resumed it. Until then the wallet's nonces may be
  // unexplained.
  if (!(await isBegun(ctx, network, wallet))) return LOOK_MS
  const now = ctx.now()
  const nextRunAt = new Date(now.getTime() + EVERY_MS)
  const job = { table: "outflow_watches", only: network.chainId, leaseMs: LEASE_MS, now, nextRunAt } as const
  await withLease(ctx.db, job, watch => watchOn(ctx, network, wallet, watch))
  return LOOK_MS
}

/**
 * Whether the wallet is active. If the wallet is active, makes sure that the watch has started, at the block up to
 * which the wallet's books are compared.
 */
async function isBegun(ctx: Context, { chainId }: Network, address: Address): Promise<boolean> {
  const wallet = await ctx.db
    .selectFrom("wallets")
    .select("status")
    .where("chain_id", "=", chainId)
    .where("address", "=", address)
    .executeTakeFirst()
  if (wallet?.status !== "active") return false
  await sql`insert into outflow_watches (chain_id, block_number, read_at, run_at)
    select c.chain_id, coalesce(w.checked_number, c.block_number), ${ctx.now()}, ${ctx.now()} from cursors c
      left join wallets w on w.chain_id = c.chain_id and w.address = ${address}
    where c.chain_id = ${chainId} on conflict do nothing`.execute(ctx.db)
  return true
}

/** Checks everything once, and records up to which block it read. */
async function watchOn(ctx: Context, network: Network, wallet: Address, watch: Watch): Promise<void> {
  const { at, unread } = await readOn(ctx, network, watch)
  // The keys are checked after the events, because events say more, and the first finding becomes the reason for the
  // halt.
  const areRead = await watchKeys(ctx, network, wallet)
  const words = unread ?? (areRead ? undefined : UNWATCHED)
  await ctx.db
    .updateTable("outflow_watches")
    .set({ block_number: at, read_at: words === undefined ? ctx.now() : watch.read_at })
    .where("chain_id", "=", network.chainId)
    .execute()
  if (words === undefined || ctx.now().getTime() - watch.read_at.getTime() < UNREAD_MS) return
  reportUnproven(ctx, network, `deposits can't be watched: ${words}`, { from: `${at + 1n}` })
}

/**
 * Reads up to the block that the scan has reached. Returns the last block that was read and, if any blocks are left,
 * the reason.
 */
async function readOn(ctx: Context, network: Network, watch: Watch): Promise<{ at: bigint; unread?: string }> {
  const { block_number: last } = await ctx.db
    .selectFrom("cursors")
    .select("block_number")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirstOrThrow()
  // After a reorg the scan moves back, and this watch moves back too.
  let at = watch.block_number < last ? watch.block_number : last
  let from = at > RESCAN_BLOCKS ? at - RESCAN_BLOCKS + 1n : 0n
  for (let ranges = 0; from <= last && ranges < RANGES_PER_ROUND; ranges++) {
    const read = await givenBackFrom(ctx, network, from, last)
    if (!read) return { at, unread: DISAGREED }
    await haltForTheft(ctx, network, read.given)
    at = read.to > at ? read.to : at
    from = read.to + 1n
  }
  return from > last ? { at } : { at, unread: `${last - at} blocks wait, and are read over the next rounds` }
}

/** Halts the payout wallets if the operator alone sent money in a transaction that is not ours. */
async function haltForTheft(ctx: Context, network: Network, given: readonly Given[]): Promise<void> {
  const [first, ...more] = await stolenAmong(ctx, network, given)
  if (!first) return
  const { txHash, deposit, token, to, amount } = first
  const others = more.length > 0 ? ` (and ${more.length} more)` : ""
  const words = `the transfer ${txHash} left a deposit without a payout: ${amount} of ${token} from ${deposit} to ${to}${others}`
  // The halt comes first, because a noticed outflow is not reported again.
  await haltPayoutWallets(ctx, network, words)
  const names = new Map([first, ...more].map(each => [`${each.txHash} ${each.deposit}`, each]))
  await ctx.db
    .insertInto("noticed_outflows")
    .values(
      [...names.values()].map(each => ({
        chain_id: network.chainId,
        tx_hash: each.txHash,
        deposit: each.deposit,
        noticed_at: ctx.now(),
      })),
    )
    .onConflict(conflict => conflict.doNothing())
    .execute()
}

async function stolenAmong(ctx: Context, network: Network, given: readonly Given[]): Promise<Given[]> {
  if (given.length === 0) return []
  const addresses = [...new Set(given.map(({ deposit }) => deposit))]
  await bringBack(ctx, { addresses })
  const deposits = new Map((await depositsNamed(ctx, network, addresses)).map(each => [each.address, each]))
  const isByOperator = ({ deposit, factory }: Given) => {
    const known = deposits.get(deposit)
    return known?.factory === factory && known.approver === factory
  }
  const doubtful = given.filter(isByOperator)
  if (doubtful.length === 0) return []
  const hashes = new Set(doubtful.map(({ txHash }) => txHash))
  const known = await ours(ctx, hashes)
  const noticed = await noticedAmong(ctx, network, hashes)
  const noted = new Set((await notedOutflows(ctx, network, [...hashes])).map(row => row.tx_hash))
  return doubtful.filter(
    ({ txHash, deposit }) => !known.has(txHash) && !noted.has(txHash) && !noticed.has(`${txHash} ${deposit}`),
  )
}

/**
 * Returns which of these transactions were signed by any process of this installation. Signatures are stored before
 * sending, and this function reads them after the chain, so the result includes a transaction that was just sent.
 */
async function ours(ctx: Context, hashes: ReadonlySet<Hash>): Promise<ReadonlySet<Hash>> {
  const among = sql`any(${sqlArray("text", hashes)})`
  const { rows } = await sql<{ hash: Hash }>`select hash from transaction_attempts where hash = ${among}
    union select tx_hash from payouts where tx_hash = ${among}`.execute(ctx.db)
  return new Set(rows.map(row => row.hash))
}
