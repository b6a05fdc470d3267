/**
 * The verification loop of one network: each round looks at the chain in one batch (a second one only when something does
 * not fit), stores what was seen, and settles what is confirmed.
 *
 * What is evidence: a log in the canonical chain, a receipt whose block is canonical, another block at a transfer's height.
 * What is none: an error, a null, an empty list, a node that lags. On no evidence nothing changes, and it is tried again.
 */
import { sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { Network } from "../chain/networks.ts"
import { batchToAny, type RpcCall, RpcError, type RpcResult } from "../chain/rpc.ts"
import {
  type Block,
  blockCall,
  type Receipt,
  readBlock,
  readReceipt,
  readTransfers,
  receiptCall,
  type Transfer,
  transferCalls,
} from "../chain/transfers.ts"
import { type Context, inTransaction } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { claimDue } from "../jobs/claim.ts"
import { NO_TRACE_MS, receiptBackoffMs } from "./payment.ts"
import {
  confirmTransfers,
  dueSubmissions,
  linkSubmissions,
  storeTransfers,
  unfinalTransfers,
  type WatchedDeposit,
  watchedDeposits,
} from "./queries.ts"
import { type Failure, faultOf, notFound, statusMessage } from "./reasons.ts"
import { settleDue } from "./settle.ts"

/** Blocks scanned again each round: nodes put logs into their index late, and shallow reorgs move them. */
const RESCAN_BLOCKS = 20n
/** Receipts asked for in one round. */
const RECEIPTS_A_ROUND = 100
/** Longer than the longest round: two batches of 10 s each per endpoint, and the settling. */
const LEASE_MS = 120_000
/** Another block at a transfer's height must be seen twice, so far apart, before the transfer is gone. */
const SUSPICION_MS = 30_000
/** A receipt that is there, but not deep enough to be judged, is looked at again after so long. */
const SHALLOW_MS = 5_000

interface Plan {
  cursor: Row<"cursors">
  deposits: Map<Address, WatchedDeposit>
  submissions: Row<"submissions">[]
  unfinal: Row<"transfers">[]
}

/** What a round saw. Maps lack what could not be learnt. */
interface Sight {
  head: Block
  finalized: Block | undefined
  /** Transfers of the settlement token to our deposits, in the blocks of this round. */
  scanned: Transfer[]
  /** By submission id; null: the node knows no such transaction. */
  receipts: Map<bigint, Receipt | null>
  /** Canonical blocks by height. */
  blocks: Map<bigint, Block>
  /** Receipts of transfers that are not where they were, by transfer id; null: nowhere. */
  lost: Map<bigint, Receipt | null>
  /** Whether the head of the last round is still canonical, so that nothing below it has changed. */
  unchangedBelow: boolean
  /** Whether another block stands where the head of the last round was. */
  reorged: boolean
  /** Whether every transfer in doubt could be compared with the canonical chain. */
  allAnswered: boolean
}

/** One round for one network; nothing happens when another process has it. Throws when the chain can't be asked. */
export async function verifyRound(ctx: Context, network: Network): Promise<void> {
  const job = { table: "cursors", key: "chain_id", only: network.chainId, limit: 1, leaseMs: LEASE_MS } as const
  const [cursor] = await claimDue(ctx.db, { ...job, now: ctx.now() })
  if (!cursor) return
  try {
    const plan: Plan = {
      cursor,
      deposits: await watchedDeposits(ctx, network.chainId),
      submissions: await dueSubmissions(ctx, network.chainId, RECEIPTS_A_ROUND),
      unfinal: await unfinalTransfers(ctx, network.chainId),
    }
    const sight = await look(network, plan, ctx.signal)
    await inTransaction(ctx, ctx => record(ctx, network, plan, sight))
    await settleDue(ctx, network)
  } finally {
    const runAt = new Date(ctx.now().getTime() + ctx.settings.verifyIntervalMs)
    await ctx.db
      .updateTable("cursors")
      .set({ run_at: runAt, claim_id: null, lease_until: null })
      .where("chain_id", "=", network.chainId)
      .where("claim_id", "=", cursor.claim_id)
      .execute()
  }
}

/** Starts the scan of a network at its present head: addresses that were never shown can't have been paid before. */
export async function ensureCursor(ctx: Context, network: Network): Promise<void> {
  const there = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  if (there) return
  const [head] = await batchToAny(network, [blockCall("latest")], ctx.signal)
  const block = readBlock(answerOf(head, "the head"))
  if (!block) throw new RpcError(`${network.name}: no head`)
  await ctx.db
    .insertInto("cursors")
    .values({
      chain_id: network.chainId,
      block_number: block.number,
      block_hash: block.hash,
      finalized_number: 0n,
      run_at: ctx.now(),
    })
    .onConflict(conflict => conflict.doNothing())
    .execute()
}

function answerOf(result: RpcResult | undefined, what: string): unknown {
  if (!result?.ok) throw new RpcError(`${what}: ${result?.error ?? "no reply"}`)
  return result.value
}

/** Only reads the chain; writes nothing. */
async function look(network: Network, plan: Plan, signal: AbortSignal): Promise<Sight> {
  const { cursor, deposits, submissions, unfinal } = plan
  const fromBlock = cursor.block_number > RESCAN_BLOCKS ? cursor.block_number - RESCAN_BLOCKS : 0n
  const scans = transferCalls(network.token.address, [...deposits.keys()], fromBlock)
  const first = await batchToAny(
    network,
    [
      blockCall("latest"),
      blockCall("finalized"),
      blockCall(cursor.block_number),
      ...scans,
      ...submissions.map(submission => receiptCall(submission.tx_hash)),
    ],
    signal,
  )
  const head = readBlock(answerOf(first[0], "the head"))
  if (!head) throw new RpcError("the head: null")
  const finalized = first[1]?.ok ? readBlock(first[1].value) : undefined
  const checkpoint = first[2]?.ok ? readBlock(first[2].value) : undefined
  const scanned = first.slice(3, 3 + scans.length).flatMap(result => readTransfers(answerOf(result, "the logs")))
  const receipts = new Map<bigint, Receipt | null>()
  submissions.forEach((submission, i) => {
    const result = first[3 + scans.length + i]
    if (!result?.ok) return
    const receipt = readReceipt(result.value)
    // A receipt of another transaction is no answer; nodes that mix replies up have been seen.
    if (receipt && receipt.txHash !== submission.tx_hash) return
    receipts.set(submission.id, receipt ?? null)
  })

  const unchangedBelow = checkpoint?.hash === cursor.block_hash
  const inPlace = new Set(scanned.map(transfer => `${keyOf(transfer)} ${transfer.blockHash}`))
  const missing = unfinal.filter(row => !inPlace.has(`${keyOfRow(row)} ${row.block_hash}`))
  const reorged = checkpoint !== undefined && !unchangedBelow
  // Deep transfers that nobody doubts are covered by the checkpoint: blocks below an unchanged one are unchanged.
  const doubted = missing.filter(
    row => reorged || row.suspect_at || row.state === "seen" || row.block_number >= fromBlock,
  )
  const heights = new Set([
    ...doubted.map(row => row.block_number),
    ...scanned.filter(transfer => !transfer.blockTime).map(transfer => transfer.blockNumber),
    ...[...receipts.values()].filter(receipt => receipt !== null).map(receipt => receipt.blockNumber),
  ])
  const second: RpcCall[] = [
    ...[...heights].map(height => blockCall(height)),
    ...doubted.map(row => receiptCall(row.tx_hash)),
  ]
  const answers = await batchToAny(network, second, signal)
  const blocks = readBlocks(answers.slice(0, heights.size))
  const lost = new Map<bigint, Receipt | null>()
  doubted.forEach((row, i) => {
    const result = answers[heights.size + i]
    const receipt = result?.ok ? (readReceipt(result.value) ?? null) : undefined
    if (receipt !== undefined && (receipt === null || receipt.txHash === row.tx_hash)) lost.set(row.id, receipt)
  })
  const moved = [...lost.values()].filter(receipt => receipt !== null && !blocks.has(receipt.blockNumber))
  const third = moved.map(receipt => blockCall(receipt?.blockNumber ?? 0n))
  for (const [height, block] of readBlocks(await batchToAny(network, third, signal))) blocks.set(height, block)
  const allAnswered = doubted.every(row => blocks.has(row.block_number))
  return { head, finalized, scanned, receipts, blocks, lost, unchangedBelow, reorged, allAnswered }
}

function readBlocks(results: readonly RpcResult[]): Map<bigint, Block> {
  const blocks = results
    .map(result => (result.ok ? readBlock(result.value) : undefined))
    .filter(block => block !== undefined)
  return new Map(blocks.map(block => [block.number, block]))
}

/** Identifies a transfer however often its transaction is mined: (token, to, k) within its transaction. */
const keyOf = (transfer: Transfer): string => `${transfer.txHash} ${transfer.token} ${transfer.to} ${transfer.k}`
const keyOfRow = (row: Row<"transfers">): string => `${row.tx_hash} ${row.token} ${row.to_address} ${row.k}`

/** Writes what was seen; call it inside a transaction. */
async function record(ctx: Context, network: Network, plan: Plan, sight: Sight): Promise<void> {
  const { cursor } = plan
  // The fence: a worker whose lease was taken over must not write what is by now old.
  const fence = await ctx.db
    .selectFrom("cursors")
    .select("chain_id")
    .where("chain_id", "=", network.chainId)
    .where("claim_id", "=", cursor.claim_id)
    .forUpdate()
    .executeTakeFirst()
  if (!fence) return

  const canonicalReceipts = [...sight.receipts.values(), ...sight.lost.values()].filter(
    receipt => receipt !== null && sight.blocks.get(receipt.blockNumber)?.hash === receipt.blockHash,
  )
  const found = new Map(
    [...sight.scanned, ...canonicalReceipts.flatMap(receipt => (receipt?.succeeded ? receipt.transfers : []))].map(
      transfer => [keyOf(transfer), transfer],
    ),
  )
  const ours = [...found.values()].flatMap(transfer => {
    const deposit = plan.deposits.get(transfer.to)
    const known = sight.blocks.get(transfer.blockNumber)
    const blockTime = transfer.blockTime ?? known?.time
    // A scan can be older than the blocks asked for after it; the block decides.
    if (!deposit || !blockTime || (known && known.hash !== transfer.blockHash)) return []
    return [{ ...transfer, depositId: deposit.id, blockTime }]
  })
  await storeTransfers(ctx, network, ours)
  await doubt(ctx, plan, sight)
  await confirm(ctx, network, sight, new Map(ours.map(transfer => [keyOf(transfer), transfer])))
  if (sight.unchangedBelow && sight.finalized) await finalize(ctx, network, sight.finalized.number)
  await judgeSubmissions(ctx, network, plan, sight)
  await linkSubmissions(ctx, network, statusMessage.verifying)
  await ctx.db
    .updateTable("cursors")
    .set({
      looked_at: ctx.now(),
      finalized_number: sql`greatest(finalized_number, ${sight.finalized?.number ?? 0n}::bigint)`,
      ...nextCheckpoint(cursor, sight),
    })
    .where("chain_id", "=", network.chainId)
    .execute()
}

/**
 * From where the next round goes on. A node that lags must not take the scan back, and a reorg is not forgotten before all
 * transfers in doubt were compared. After one the scan goes back to the finalized block: it may be deeper than the rescan.
 */
function nextCheckpoint(cursor: Row<"cursors">, sight: Sight): Partial<Row<"cursors">> {
  const { head, finalized, reorged, allAnswered } = sight
  if (head.number < cursor.block_number || (reorged && !allAnswered)) return {}
  const from = reorged && finalized ? finalized : head
  return { block_number: from.number, block_hash: from.hash }
}

/** Transfers whose height holds another block: suspected first, gone when it is so again after {@link SUSPICION_MS}. */
async function doubt(ctx: Context, plan: Plan, sight: Sight): Promise<void> {
  const now = ctx.now()
  const rows = await unfinalTransfers(ctx, plan.cursor.chain_id)
  for (const row of rows) {
    const canonical = sight.blocks.get(row.block_number)
    if (!canonical) continue
    const displaced = canonical.hash !== row.block_hash
    const { run_at, suspect_at, state } = row
    let change: Partial<Pick<Row<"transfers">, "suspect_at" | "state" | "run_at">> | undefined
    if (!displaced && suspect_at) change = { suspect_at: null }
    else if (displaced && !suspect_at) change = { suspect_at: now }
    else if (displaced && suspect_at && now.getTime() - suspect_at.getTime() >= SUSPICION_MS && isNowhere(sight, row))
      change = { state: "gone", run_at: now }
    if (!change) continue
    ctx.log.warn(
      { txHash: row.tx_hash, from: { run_at, suspect_at, state }, to: change },
      "another block stands at a transfer's height",
    )
    await ctx.db.updateTable("transfers").set(change).where("id", "=", row.id).execute()
    if (change.state === "gone")
      await sql`update submissions set run_at = ${now} where chain_id = ${row.chain_id} and tx_hash = ${row.tx_hash}
        and address = ${row.from_address} and status = 'verifying' and run_at is null`.execute(ctx.db)
  }
}

/** The transaction has no receipt, or one that no longer holds the transfer. An unanswered question is not "nowhere". */
function isNowhere(sight: Sight, row: Row<"transfers">): boolean {
  const receipt = sight.lost.get(row.id)
  if (receipt === undefined) return false
  if (receipt === null) return true
  const canonical = sight.blocks.get(receipt.blockNumber)?.hash === receipt.blockHash
  return canonical && !(receipt.succeeded && receipt.transfers.some(transfer => keyOf(transfer) === keyOfRow(row)))
}

/** Seen transfers that stand where they stood, deep enough, are confirmed. */
async function confirm(
  ctx: Context,
  network: Network,
  sight: Sight,
  inSight: Map<string, { blockHash: string }>,
): Promise<void> {
  const deepest = sight.head.number - network.confirmations + 1n
  const rows = (await unfinalTransfers(ctx, network.chainId)).filter(
    row => row.state === "seen" && row.block_number <= deepest,
  )
  const standing = rows.filter(row => {
    const canonical = sight.blocks.get(row.block_number)?.hash ?? inSight.get(keyOfRow(row))?.blockHash
    return canonical === row.block_hash
  })
  await confirmTransfers(
    ctx,
    standing.map(row => ({ id: row.id, blockHash: row.block_hash })),
  )
}

/** Confirmed transfers in finalized blocks are never looked at again. */
async function finalize(ctx: Context, network: Network, finalized: bigint): Promise<void> {
  await ctx.db
    .updateTable("transfers")
    .set({ state: "final" })
    .where("chain_id", "=", network.chainId)
    .where("state", "=", "confirmed")
    .where("suspect_at", "is", null)
    .where("block_number", "<=", finalized)
    .execute()
}

/** Ends, or puts off, the submissions whose receipts were asked for. Those that name a transfer in sight are linked later. */
async function judgeSubmissions(ctx: Context, network: Network, plan: Plan, sight: Sight): Promise<void> {
  const now = ctx.now()
  for (const submission of plan.submissions) {
    const receipt = sight.receipts.get(submission.id)
    const again = (ms: number) => ({
      run_at: new Date(now.getTime() + ms),
      attempts: submission.attempts + 1,
      updated_at: now,
    })
    let change: Partial<Row<"submissions">>
    if (receipt) {
      const canonical = sight.blocks.get(receipt.blockNumber)?.hash === receipt.blockHash
      const deep = sight.head.number - receipt.blockNumber + 1n >= network.confirmations
      const fault = faultOf(receipt, claimOf(network, plan, submission), address => ownerOf(plan, address))
      if (canonical && deep && fault) change = failed(fault, receipt.blockNumber)
      else change = { ...again(SHALLOW_MS), block_number: receipt.blockNumber }
    } else {
      const overdue = now.getTime() - submission.submitted_at.getTime() >= NO_TRACE_MS
      change =
        receipt === null && overdue
          ? failed(notFound(network.name), null)
          : again(receiptBackoffMs(submission.attempts))
    }
    await ctx.db
      .updateTable("submissions")
      .set(change)
      .where("id", "=", submission.id)
      .where("status", "=", "verifying")
      .execute()
  }
  function failed({ reason, message }: Failure, blockNumber: bigint | null) {
    return { status: "failed" as const, reason, message, run_at: null, block_number: blockNumber, updated_at: now }
  }
}

function claimOf(network: Network, plan: Plan, submission: Row<"submissions">) {
  const own = [...plan.deposits.values()].filter(deposit => deposit.paywallId === submission.paywall_id)
  const payTo = own.at(-1)?.address
  if (!payTo) throw new Error(`the paywall ${submission.paywall_id} has no receiving address`)
  const deposits = new Set(own.map(deposit => deposit.address))
  return { address: submission.address, deposits, payTo, token: network.token, network: network.name }
}

function ownerOf(plan: Plan, address: Address): string | undefined {
  const deposit = plan.deposits.get(address)
  return deposit && `the paywall ${deposit.paywallId}`
}
