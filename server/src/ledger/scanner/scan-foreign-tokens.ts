/**
 * Finds tokens that arrived at receiving addresses and in which nothing is sold, even if nobody submitted a hash. This
 * scan reads the Transfer logs of every token to the addresses that were in the scan, and asks each token for the
 * address's balance.
 *
 * Anyone can emit such logs for free, so this scan is separate from the payment scan. The scan has its own job, its own
 * position, its own record of what endpoints refuse, and a fixed number of calls per round. A flood only makes the scan
 * fall behind. The scan reads only finalized blocks, so no reorg removes what it found.
 */
import { sql } from "kysely"
import { statementOf, votesNeeded } from "../../platform/chain/agreement.ts"
import { awake, type Endpoint, endpointCopies } from "../../platform/chain/endpoints.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum, type Quorum } from "../../platform/chain/quorum.ts"
import { type Allowance, readAnyToken } from "../../platform/chain/read-any-token.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import type { Block, Transfer } from "../../platform/chain/transfers.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { withLease } from "../../platform/jobs/claim.ts"
import { askBalances } from "./check-foreign-tokens.ts"
import { type Watched, watchedSince, writeProgress } from "./track-foreign-tokens.ts"

type Scan = Row<"token_scans">
/** The position of the scan, and the time since which addresses that have left the payment scan are included. */
type Position = Pick<Scan, "from_block" | "to_block" | "from_time" | "after_id" | "blocks">

/** The wait between two rounds: when all finalized blocks are read, and when some are not. */
const PAUSE_MS = 300_000
const SOON_MS = 30_000
/**
 * How many `eth_getLogs` calls a round sends to each endpoint. With 1,000 addresses per call, these calls cover 40,000
 * addresses.
 */
const CALLS_PER_ROUND = 40
const ROUND_MS = 60_000
/** Longer than a round, its last answers and its balance reads take together. */
const LEASE_MS = 300_000
const ADDRESSES_PER_CALL = 1_000
const MAX_BLOCKS = 1_000n
/** The most new rows of a network in a day. After that, the scan pauses. */
const MAX_PER_DAY = 2_000
const DAY_MS = 24 * 3_600_000

/** Runs one round if it is due, and returns how many milliseconds the next round may wait. */
export async function foreignTokenRound(ctx: Context, network: Network): Promise<number> {
  const now = ctx.now()
  if (!(await isBegun(ctx, network))) return SOON_MS
  const job = { table: "token_scans", only: network.chainId, leaseMs: LEASE_MS, now } as const
  await withLease(ctx.db, { ...job, nextRunAt: new Date(now.getTime() + PAUSE_MS) }, async scan => {
    const own = { ...network, endpoints: network.endpoints.map(ownCopy) }
    try {
      if (await hasRoom(ctx, network)) await readOn(ctx, own, scan)
      await askBalances(ctx, own)
    } catch (error) {
      // The payment scan reports endpoints that can't be reached.
      if (!(error instanceof RpcError) || ctx.signal.aborted) throw error
    }
  })
  return SOON_MS
}

/**
 * Starts the scan at the last block that the payment scan knows to be final. Returns whether the scan has a position.
 */
async function isBegun(ctx: Context, { chainId }: Network): Promise<boolean> {
  const begun = await sql`insert into token_scans (chain_id, from_block, to_block, from_time, blocks, run_at)
    select chain_id, finalized_number + 1, finalized_number, ${ctx.now()}, ${MAX_BLOCKS}, ${ctx.now()} from cursors
    where chain_id = ${chainId} and finalized_number > 0 on conflict do nothing`.execute(ctx.db)
  if (begun.numAffectedRows) return true
  const there = await ctx.db
    .selectFrom("token_scans")
    .select("chain_id")
    .where("chain_id", "=", chainId)
    .executeTakeFirst()
  return there !== undefined
}

/** If an endpoint refuses a request of this job, the payment scan must still use the endpoint. */
const ownCopy = endpointCopies()

async function hasRoom(ctx: Context, { chainId, name }: Network): Promise<boolean> {
  const since = new Date(ctx.now().getTime() - DAY_MS)
  const { rows } = await sql<{ n: number }>`select count(*)::int as n from foreign_tokens
    where chain_id = ${chainId} and found_at > ${since}`.execute(ctx.db)
  const isFull = (rows[0]?.n ?? 0) >= MAX_PER_DAY
  if (isFull) ctx.log.info({ network: name }, "so many foreign tokens were found today that the scan for them waits")
  return !isFull
}

interface Step {
  next: Position
  found: { log: Transfer; deposit: Watched }[]
  /** Whether the round ends with this step. */
  isLast: boolean
}

async function readOn(ctx: Context, network: Network, scan: Scan): Promise<void> {
  const quorum = await openQuorum(network, scan.to_block, ctx.signal)
  const until = performance.now() + ROUND_MS
  const allowances = new Map(network.endpoints.map(each => [each, { calls: CALLS_PER_ROUND, until }]))
  let at: Position = scan
  for (;;) {
    if (at.to_block < at.from_block) {
      const to = at.from_block + at.blocks - 1n
      at = { ...at, to_block: to < quorum.finalized ? to : quorum.finalized, after_id: 0n }
      // All finalized blocks are read.
      if (at.to_block < at.from_block) return
    }
    const step = await readPage(ctx, network, { quorum, allowances }, at)
    if (!step) break
    if (!(await writeProgress(ctx, network, scan, step.next, step.found))) return
    at = step.next
    if (step.isLast) break
  }
  const run_at = new Date(ctx.now().getTime() + SOON_MS)
  await writeProgress(ctx, network, scan, { ...at, run_at }, [])
}

interface Round {
  quorum: Quorum
  allowances: ReadonlyMap<Endpoint, Allowance>
}

/** Reads the next addresses in the current blocks; undefined if too few endpoints respond. */
async function readPage(ctx: Context, network: Network, round: Round, at: Position): Promise<Step | undefined> {
  const { quorum, allowances } = round
  await quorum.learn([at.to_block], [])
  const has = quorum.blockAt(at.to_block)?.block
  if (!has) return undefined
  const deposits = await watchedSince(ctx, network.chainId, at, ADDRESSES_PER_CALL)
  const last = deposits.at(-1)
  if (!last) return { next: afterBlocks(at, has), found: [], isLast: false }
  // If all calls of a round are not enough for a page, no round can read the page.
  const isWhole = [...allowances.values()].every(({ calls }) => calls === CALLS_PER_ROUND)
  const addresses = deposits.map(deposit => deposit.address)
  const query = { addresses, fromBlock: at.from_block, toBlock: at.to_block, has }
  const readings = await Promise.all(
    awake(network.endpoints).map(async endpoint => {
      const allowance = allowances.get(endpoint)
      return allowance ? await readAnyToken(endpoint, query, allowance, ctx.signal) : "silent"
    }),
  )
  const needed = votesNeeded(network.endpoints.length)
  const read = readings.filter(reading => typeof reading !== "string")
  if (read.length >= needed) {
    const found = agreedAmong(read, needed).flatMap(log => {
      const deposit = deposits.find(each => each.address === log.to)
      return deposit && log.token !== network.token.address ? [{ log, deposit }] : []
    })
    return { next: { ...at, after_id: last.id }, found, isLast: false }
  }
  const tooMuch = readings.filter(reading => reading === "too much").length
  if (!isWhole || read.length + tooMuch < needed) return undefined
  if (at.to_block === at.from_block) {
    const facts = { network: network.name, block: at.to_block, addresses: addresses.length }
    ctx.log.warn(
      facts,
      "foreign tokens in a block are not looked for, because the block has more transfers than the service reads",
    )
    return { next: { ...at, after_id: last.id }, found: [], isLast: true }
  }
  const blocks = (at.to_block - at.from_block + 1n) / 2n
  return { next: { ...at, to_block: at.from_block + blocks - 1n, blocks }, found: [], isLast: true }
}

/**
 * Moves past blocks for which all addresses are read. The next range is larger if a flood or a node's limit made this
 * range small.
 */
function afterBlocks({ to_block, blocks }: Position, { time }: Block): Position {
  const more = 2n * blocks < MAX_BLOCKS ? 2n * blocks : MAX_BLOCKS
  return { from_block: to_block + 1n, to_block, from_time: time, after_id: 0n, blocks: more }
}

/** Returns the logs that a quorum of endpoints reports identically, each once, in chain order. */
function agreedAmong(readings: readonly Transfer[][], needed: number): Transfer[] {
  const votes = new Map<string, { log: Transfer; by: Set<number> }>()
  for (const [position, logs] of readings.entries())
    for (const log of logs) {
      const vote = votes.get(statementOf(log)) ?? { log, by: new Set() }
      votes.set(statementOf(log), vote)
      vote.by.add(position)
    }
  const agreed = [...votes.values()].filter(({ by }) => by.size >= needed).map(({ log }) => log)
  return agreed.sort((a, b) =>
    a.blockNumber === b.blockNumber ? a.logIndex - b.logIndex : a.blockNumber < b.blockNumber ? -1 : 1,
  )
}
