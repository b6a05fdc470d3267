/**
 * The verification of one network: each round looks at the chain, stores what was seen in one transaction, and settles
 * what is confirmed.
 *
 * What is evidence: a log whose block is canonical when it is confirmed and again when it becomes final; a receipt whose
 * block is canonical; another block at a transfer's height, seen by two endpoints or twice, 30 seconds apart, while the
 * log is nowhere. On no evidence nothing changes, and it is tried again.
 */
import { sql } from "kysely"
import { askAny } from "../chain/endpoints.ts"
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { RpcError } from "../chain/rpc.ts"
import { type Block, blockCall, readBlock } from "../chain/transfers.ts"
import { type Context, inTransaction } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { claimDue } from "../jobs/claim.ts"
import { parseAmount } from "../money/amount.ts"
import { keyOf, openPanel, type Panel, type Scan } from "./look.ts"
import { NO_TRACE_MS, receiptBackoffMs } from "./payment.ts"
import {
  confirmTransfers,
  depositsAmong,
  dueSubmissions,
  finalizeTransfers,
  hotDeposits,
  linkSubmissions,
  storeTransfers,
  unfinalTransfers,
  type WatchedDeposit,
  wakeSessions,
  watchedUpTo,
} from "./queries.ts"
import { type Failure, faultOf, notFound, statusMessage } from "./reasons.ts"
import { settleDue } from "./settle.ts"
import { settleSessions } from "./settle-session.ts"
import { learnTokens, withoutFlood } from "./tokens.ts"

/** Blocks scanned again each round: nodes put logs into their index late, and shallow reorgs move them. */
const RESCAN_BLOCKS = 20n
/** Scanned again every {@link DEEP_MS}: what a node that lagged unnoticed did not tell. Twice the blocks of that time. */
const DEEP_BLOCKS = 600n
const DEEP_MS = 600_000
/** Receipts asked for in one round. */
const RECEIPTS_A_ROUND = 100
/** Longer than a round's requests and its settling can take together. */
const LEASE_MS = 90_000
/** Another block at a transfer's height must be seen twice, so far apart, where one endpoint alone says so. */
const SUSPICION_MS = 30_000
/** A receipt that is there, but not deep enough to be judged, is looked at again after so long. */
const SHALLOW_MS = 5_000
/** Heights compared at once when a reorg was noticed. */
const HEIGHTS_A_STEP = 50

/** One round for one network; nothing happens when it is not due or another process has it. */
export async function verifyRound(ctx: Context, network: Network): Promise<void> {
  const now = ctx.now()
  const job = { table: "cursors", key: "chain_id", only: network.chainId, limit: 1, leaseMs: LEASE_MS } as const
  // Due again before the work begins: a submission in the middle of it brings that forward, and is not overwritten.
  const [cursor] = await claimDue(ctx.db, {
    ...job,
    now,
    nextRunAt: new Date(now.getTime() + ctx.settings.verifyIntervalMs),
  })
  if (!cursor) return
  try {
    const sight = await look(ctx, network, cursor)
    const ended = await inTransaction(ctx, ctx => record(ctx, network, sight))
    if (ended) await ctx.wakes.wake("payments")
    await learnTokens(ctx, network)
    await settleDue(ctx, network)
    await settleSessions(ctx, network)
  } finally {
    await ctx.db
      .updateTable("cursors")
      .set({ claim_id: null, lease_until: null })
      .where("chain_id", "=", network.chainId)
      .where("claim_id", "=", cursor.claim_id)
      .execute()
  }
}

/** Starts the scan of a network at its present head; must be done before any of its addresses is shown. */
export async function ensureCursor(ctx: Context, network: Network): Promise<void> {
  const there = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  if (there) return
  const [head] = await askAny(network.endpoints, [blockCall("latest")], ctx.signal)
  const block = head?.ok ? readBlock(head.value) : undefined
  if (!block) throw new RpcError(`${network.name}: the head can't be read`)
  const row = { chain_id: network.chainId, block_number: block.number, block_hash: block.hash, finalized_number: 0n }
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

/** All that a round learnt. */
interface Sight {
  cursor: Row<"cursors">
  panel: Panel
  deposits: Map<Address, WatchedDeposit>
  submissions: Row<"submissions">[]
  unfinal: Row<"transfers">[]
  /** The scan of the hot addresses, and of those that have to be caught up with first. */
  scan: Scan
  backfill: (Scan & { ids: bigint[] }) | undefined
  /** Transfers that are not where they were: their height, and whether their receipt is anywhere, were asked for. */
  doubted: Row<"transfers">[]
  /** Whether another block stands where the head of the last round was. */
  reorged: boolean
  /** Whether all transfers in doubt could be compared with the canonical chain. */
  allCompared: boolean
}

/** Reads the database and the chain; writes nothing. */
async function look(ctx: Context, network: Network, cursor: Row<"cursors">): Promise<Sight> {
  const hot = await hotDeposits(ctx, network.chainId)
  const submissions = await dueSubmissions(ctx, network.chainId, RECEIPTS_A_ROUND)
  const unfinal = await unfinalTransfers(ctx, network.chainId)
  const deposits = new Map<Address, WatchedDeposit>()
  // Of a million addresses only those that this round can meet.
  const know = async (addresses: Address[], resources: string[] = []) => {
    const unknown = addresses.filter(address => !deposits.has(address))
    for (const deposit of await depositsAmong(ctx, network.chainId, unknown, resources))
      deposits.set(deposit.address, deposit)
  }
  for (const deposit of hot) deposits.set(deposit.address, deposit)
  await know(
    unfinal.map(row => row.to_address),
    submissions.map(resourceOf),
  )
  const panel = await openPanel(network, cursor.block_number, ctx.signal)

  const addresses = hot.map(deposit => deposit.address)
  const scan = await panel.scan(
    addresses,
    back(cursor.block_number, isDeepRound(ctx, cursor) ? DEEP_BLOCKS : RESCAN_BLOCKS),
  )
  const behind = hot.filter(deposit => deposit.watchedNumber !== null)
  const oldest = behind.reduce(
    (low, { watchedNumber }) => (watchedNumber !== null && watchedNumber < low ? watchedNumber : low),
    cursor.block_number,
  )
  const backfill =
    behind.length === 0
      ? undefined
      : {
          ...(await panel.scan(
            behind.map(deposit => deposit.address),
            back(oldest, RESCAN_BLOCKS),
          )),
          ids: behind.map(deposit => deposit.id),
        }

  const checkpoint = panel.blockAt(cursor.block_number)
  const reorged = checkpoint !== undefined && checkpoint.block.hash !== cursor.block_hash
  const inPlace = new Set(
    [...scan.transfers, ...(backfill?.transfers ?? [])].map(each => `${keyOf(each)} ${each.blockHash}`),
  )
  const deepest = panel.head.number - network.confirmations + 1n
  const start = back(cursor.block_number, RESCAN_BLOCKS)
  const doubted = unfinal.filter(
    row =>
      row.suspect_at ||
      (row.block_number >= start &&
        row.block_number <= scan.scannedTo &&
        !inPlace.has(`${keyOfRow(row)} ${row.block_hash}`)),
  )
  const changing = unfinal.filter(row =>
    row.state === "seen" ? row.block_number <= deepest : !row.suspect_at && row.block_number <= panel.finalized,
  )
  const inSight = [
    ...scan.transfers,
    ...unfinal.map(row => ({ txHash: row.tx_hash, from: row.from_address, to: row.to_address })),
  ]
  const explained = new Set(
    inSight.flatMap(({ txHash, from, to }) => {
      const resource = deposits.get(to)?.resource
      return [`${txHash} ${from} ${resource}`, `${txHash} ${resource}`]
    }),
  )
  const unexplained = submissions
    .filter(row => {
      const sender = row.paywall_id === null ? "" : `${row.address} `
      return !explained.has(`${row.tx_hash} ${sender}${resourceOf(row)}`)
    })
    .map(submission => submission.tx_hash)
  const untimed = scan.transfers.filter(each => !each.blockTime).map(each => each.blockNumber)
  const quorate = changing.filter(row => needsTwo(ctx, network, row)).map(row => row.tx_hash)
  await panel.learn(
    [...[...doubted, ...changing].map(row => row.block_number), ...untimed],
    [...doubted.map(row => row.tx_hash), ...unexplained, ...quorate],
  )
  const allCompared = !reorged || (await compareDownwards(panel, unfinal, doubted))
  // Where the next round may go on from.
  await panel.learn(reorged ? [panel.finalized] : scan.scannedTo > cursor.block_number ? [scan.scannedTo] : [], [])
  const receipts = [...submissions, ...doubted].map(
    row => panel.receiptOf(row.tx_hash) ?? panel.anyReceipt(row.tx_hash),
  )
  await panel.learn(
    receipts.flatMap(receipt => (receipt ? [receipt.blockNumber] : [])),
    [],
  )
  await know(receipts.flatMap(receipt => receipt?.transfers.map(transfer => transfer.to) ?? []))
  return { cursor, panel, deposits, submissions, unfinal, scan, backfill, doubted, reorged, allCompared }
}

/** What a submission names: a paywall or a checkout session. */
const resourceOf = ({ paywall_id, session_id }: Row<"submissions">): string => paywall_id ?? session_id ?? ""

const back = (number: bigint, blocks: bigint): bigint => (number > blocks ? number - blocks : 0n)

/** Whether this round is the first of its ten minutes. */
const isDeepRound = (ctx: Context, cursor: Row<"cursors">): boolean =>
  Math.floor(ctx.now().getTime() / DEEP_MS) !== Math.floor((cursor.looked_at?.getTime() ?? 0) / DEEP_MS)

const keyOfRow = (row: Row<"transfers">): string =>
  keyOf({ txHash: row.tx_hash, token: row.token, to: row.to_address, k: row.k })

/** Whether the payment is so large, and the network has so many endpoints, that two of them must have it. */
function needsTwo(ctx: Context, network: Network, row: Row<"transfers">): boolean {
  return network.endpoints.length > 1 && row.value > parseAmount(ctx.settings.quorumAbove, network.token.decimals)
}

/**
 * After a reorg: compares transfers that are not final with the canonical chain from the top down, until one stands where
 * it stood, and adds the others to `doubted`. False when a height could not be asked.
 */
async function compareDownwards(
  panel: Panel,
  unfinal: readonly Row<"transfers">[],
  doubted: Row<"transfers">[],
): Promise<boolean> {
  const heights = [...new Set(unfinal.map(row => row.block_number))].sort((a, b) => (a < b ? 1 : -1))
  for (let start = 0; start < heights.length; start += HEIGHTS_A_STEP) {
    const step = new Set(heights.slice(start, start + HEIGHTS_A_STEP))
    await panel.learn(step, [])
    const rows = unfinal.filter(row => step.has(row.block_number))
    if (rows.some(row => !panel.blockAt(row.block_number))) return false
    const displaced = rows.filter(row => panel.blockAt(row.block_number)?.block.hash !== row.block_hash)
    await panel.learn(
      [],
      displaced.map(row => row.tx_hash),
    )
    doubted.push(...displaced.filter(row => !doubted.includes(row)))
    if (displaced.length < rows.length) return true
  }
  return true
}

/** Writes what was seen; call it inside a transaction. Answers whether a submission ended. */
async function record(ctx: Context, network: Network, sight: Sight): Promise<boolean> {
  const { cursor, panel, scan, backfill } = sight
  // The fence: a worker whose lease was taken over must not write what is by now old.
  const fence = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .where("claim_id", "=", cursor.claim_id)
    .forUpdate()
    .executeTakeFirst()
  if (!fence) return false

  const receipts = [...sight.submissions, ...sight.doubted].map(row => panel.receiptOf(row.tx_hash))
  const found = [
    ...scan.transfers,
    ...(backfill?.transfers ?? []),
    ...receipts.flatMap(each => (each?.succeeded ? each.transfers : [])),
  ]
  const ours = [...new Map(found.map(transfer => [keyOf(transfer), transfer])).values()].flatMap(transfer => {
    const deposit = sight.deposits.get(transfer.to)
    const canonical = panel.blockAt(transfer.blockNumber)?.block
    const blockTime = transfer.blockTime ?? canonical?.time
    // Logs can be older than the blocks asked for after them; the block decides.
    if (!deposit || !blockTime || (canonical && canonical.hash !== transfer.blockHash)) return []
    return [{ ...transfer, depositId: deposit.id, blockTime }]
  })
  const changed = await storeTransfers(ctx, network, withoutFlood(network, ours))
  await doubt(ctx, sight)
  await confirm(ctx, network, sight)
  const ended = await judgeSubmissions(ctx, network, sight)
  await wakeSessions(
    ctx,
    changed,
    ended.flatMap(submission => submission.session_id ?? []),
  )
  await linkSubmissions(ctx, network, statusMessage.verifying)
  if (backfill)
    await watchedUpTo(ctx, backfill.ids, backfill.scannedTo < panel.head.number ? backfill.scannedTo : undefined)
  await ctx.db
    .updateTable("cursors")
    .set({
      looked_at: ctx.now(),
      finalized_number: sql`greatest(finalized_number, ${panel.finalized}::bigint)`,
      ...nextCheckpoint(sight),
    })
    .where("chain_id", "=", network.chainId)
    .execute()
  return ended.length > 0
}

/**
 * From where the next round goes on: from the head, or from as far as the logs were surely read. A node that lags must not
 * take the scan back, and a reorg is not forgotten before all transfers in doubt were compared; after one the scan goes
 * back to the finalized block, as it may be deeper than the rescan.
 */
function nextCheckpoint({ cursor, panel, scan, reorged, allCompared }: Sight): Partial<Row<"cursors">> {
  const at = (block: Block | undefined) => (block ? { block_number: block.number, block_hash: block.hash } : {})
  if (reorged && !allCompared) return {}
  if (reorged) return at(panel.blockAt(panel.finalized)?.block)
  if (panel.head.number < cursor.block_number) return {}
  if (scan.scannedTo >= panel.head.number) return at(panel.head)
  return scan.scannedTo > cursor.block_number ? at(panel.blockAt(scan.scannedTo)?.block) : {}
}

/** Transfers whose height holds another block: gone at once when two endpoints say so, else when it is so twice. */
async function doubt(ctx: Context, { panel, cursor }: Sight): Promise<void> {
  const now = ctx.now()
  for (const row of await unfinalTransfers(ctx, cursor.chain_id)) {
    const canonical = panel.blockAt(row.block_number)
    if (!canonical) continue
    const displaced = canonical.block.hash !== row.block_hash
    const suspectedMs = row.suspect_at ? now.getTime() - row.suspect_at.getTime() : -1
    const proven = displaced && (canonical.votes > 1 || suspectedMs >= SUSPICION_MS) && isNowhere(panel, row)
    let change: Partial<Pick<Row<"transfers">, "suspect_at" | "state" | "run_at">>
    if (proven) change = { state: "gone", run_at: now }
    else if (displaced !== (row.suspect_at !== null)) change = { suspect_at: displaced ? now : null }
    else continue
    ctx.log.warn(
      { txHash: row.tx_hash, state: row.state, change },
      "another block stands, or stood, at a transfer's height",
    )
    await ctx.db.updateTable("transfers").set(change).where("id", "=", row.id).execute()
  }
}

/** The transaction has no receipt, or one that no longer holds the transfer. An unanswered question is not "nowhere". */
function isNowhere(panel: Panel, row: Row<"transfers">): boolean {
  const receipt = panel.receiptOf(row.tx_hash)
  if (!receipt) return receipt === null
  return !(receipt.succeeded && receipt.transfers.some(transfer => keyOf(transfer) === keyOfRow(row)))
}

/** Transfers whose block is canonical now: confirmed when deep enough, final when their block is. */
async function confirm(ctx: Context, network: Network, { panel, scan, cursor }: Sight): Promise<void> {
  const deepest = panel.head.number - network.confirmations + 1n
  const standing = (await unfinalTransfers(ctx, cursor.chain_id)).filter(row => {
    if (panel.blockAt(row.block_number)?.block.hash !== row.block_hash) return false
    if (!needsTwo(ctx, network, row)) return true
    const key = keyOfRow(row)
    const votes = panel.receiptVotes({ txHash: row.tx_hash, key, blockHash: row.block_hash })
    return (
      Math.max(votes, scan.sightings.get(`${key} ${row.block_hash}`) ?? 0) > 1 &&
      (panel.blockAt(row.block_number)?.votes ?? 0) > 1
    )
  })
  await confirmTransfers(
    ctx,
    standing.filter(row => row.state === "seen" && row.block_number <= deepest),
  )
  await finalizeTransfers(
    ctx,
    standing.filter(row => row.state === "confirmed" && row.block_number <= panel.finalized),
  )
}

/** Ends, or puts off, the submissions that were due, and answers those that ended. Those that name a transfer in sight are linked later. */
async function judgeSubmissions(
  ctx: Context,
  network: Network,
  { panel, deposits, submissions }: Sight,
): Promise<Row<"submissions">[]> {
  const now = ctx.now()
  const ended: Row<"submissions">[] = []
  for (const submission of submissions) {
    const receipt = panel.receiptOf(submission.tx_hash)
    const again = (ms: number) => ({
      run_at: new Date(now.getTime() + ms),
      attempts: submission.attempts + 1,
      updated_at: now,
    })
    let change: Partial<Row<"submissions">>
    if (receipt) {
      const deep = panel.head.number - receipt.blockNumber + 1n >= network.confirmations
      const fault = faultOf(receipt, claimOf(network, deposits, submission), address => ownerOf(deposits, address))
      change =
        deep && fault ? failed(fault, receipt.blockNumber) : { ...again(SHALLOW_MS), block_number: receipt.blockNumber }
    } else {
      // Not at the first look: the service itself may have been down all day.
      const overdue = now.getTime() - submission.submitted_at.getTime() >= NO_TRACE_MS && submission.attempts > 1
      change =
        receipt === null && overdue
          ? failed(notFound(network.name), null)
          : again(receiptBackoffMs(submission.attempts))
    }
    if (change.status === "failed") ended.push(submission)
    await ctx.db
      .updateTable("submissions")
      .set(change)
      .where("id", "=", submission.id)
      .where("status", "=", "verifying")
      .execute()
  }
  return ended

  function failed({ reason, message }: Failure, blockNumber: bigint | null) {
    return { status: "failed" as const, reason, message, run_at: null, block_number: blockNumber, updated_at: now }
  }
}

function claimOf(network: Network, deposits: Map<Address, WatchedDeposit>, submission: Row<"submissions">) {
  const own = [...deposits.values()].filter(deposit => deposit.resource === resourceOf(submission))
  const payTo = own.reduce(
    (last, each) => (each.id > last.id ? each : last),
    own[0] ?? { id: 0n, address: undefined },
  ).address
  if (!payTo) throw new Error(`${resourceOf(submission)} has no receiving address`)
  const addresses = new Set(own.map(deposit => deposit.address))
  const sender = submission.paywall_id === null ? null : submission.address
  return { address: sender, deposits: addresses, payTo, token: network.token, network: network.name }
}

function ownerOf(deposits: Map<Address, WatchedDeposit>, address: Address): string | undefined {
  const resource = deposits.get(address)?.resource
  // A session's id is known to its payer alone.
  return resource?.startsWith("pw_") ? `the paywall ${resource}` : resource && "another checkout"
}
