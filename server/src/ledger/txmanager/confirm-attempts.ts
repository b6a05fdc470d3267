/**
 * Confirms payouts only through evidence from the chain: a receipt of one of their attempts in a canonical block.
 * Before finality a payout is `mined`; in a finalized block it is `final` or `reverted`. If endpoints agree that the
 * block of a payout was displaced, the same bytes are sent again.
 */
import { sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { Quorum } from "../../platform/chain/quorum.ts"
import type { Receipt } from "../../platform/chain/transfers.ts"
import type { WalletState } from "../../platform/chain/wallet-state.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import { kindOf } from "../../platform/db/by-kind.ts"
import type { LaneName, PayoutKindName } from "../../platform/db/payout-kinds.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { payoutEnds } from "../../platform/metrics.ts"
import { unixMs } from "../../platform/tracing/trace.ts"
import type { Lane, LaneInfo, Touched } from "./lane.ts"
import { haltWallet } from "./lock-wallet.ts"
import { type BatchCall, callsOf, hasAllTransfers, isUsedIn } from "./read-batch-calls.ts"
import { type OpenPayout, readOpenPayouts, topMined } from "./read-open-transactions.ts"
import { takeBack } from "./take-back.ts"
import { type Traced, tracePayouts } from "./trace-transactions.ts"

/**
 * A wallet halts only if another transaction seems to have used a nonce in two reads that are at least this far apart.
 */
const SUSPICION_MS = 30_000

/** How many payouts changed, and the payouts that may have changed. */
export interface Confirmed {
  changed: number
  looked: Touched[]
}

/** Writes the states that the chain shows for payouts that have a nonce. */
export async function confirmPayouts(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  quorum: Quorum,
  { latest, agreedFinalized }: WalletState,
): Promise<Confirmed> {
  if (latest === undefined) return { changed: 0, looked: [] }
  const [open, top] = await Promise.all([
    readOpenPayouts(
      ctx,
      wallet,
      "/* named: open_payouts */",
      sql`i.state = 'assigned' and i.nonce < ${latest}`,
      sql`i.state = 'mined' and i.block_number <= ${quorum.finalized}`,
    ),
    topMined(ctx, wallet),
  ])
  const heights = open.filter(row => endsByBlock(row, latest)).map(({ id, block_number }) => ({ id, block_number }))
  const byBlock = new Set(heights.map(({ id }) => id))
  // One request reads the highest block together with everything else that is needed anyway.
  await learn(quorum, [...open.filter(({ id }) => !byBlock.has(id)), ...heights, ...top])
  const displaced = await displacedPayouts(ctx, wallet, quorum, top)
  const settledNow = open.flatMap(row => (byBlock.has(row.id) ? finalAsMined(row, quorum) : []))
  const final = new Set(settledNow.map(({ row }) => row.id))
  const others = [...open, ...displaced].filter(({ id }) => !final.has(id))
  await learn(quorum, others)
  const calls = await callsOf(ctx, [...open, ...displaced])
  const observed = [...new Map(others.map(row => [row.id, row])).values()]
  let changed = 0
  /** The lowest finalized nonce that none of our attempts used. */
  let foreign: bigint | undefined
  for (const row of observed) {
    const answers = row.hashes.map(hash => quorum.receiptOf(hash))
    // At most one transaction per nonce is mined.
    const receipt = answers.find(answer => answer !== null && answer !== undefined)
    if (receipt && lacksTransfer(lane, row, receipt, calls.get(row.id))) await reportMissing(ctx, row, receipt.txHash)
    else if (receipt) settledNow.push(...judge(row, receipt, quorum))
    else if (row.state === "mined" && isDisplaced(row, quorum)) changed += await takeBack(ctx, row)
    else if (answers.every(answer => answer === null) && row.nonce < (agreedFinalized ?? 0n))
      foreign = foreign === undefined || row.nonce < foreign ? row.nonce : foreign
  }
  await suspectForeign(ctx, lane, wallet, foreign)
  const isAlone = ({ row, state }: Settled) =>
    (state === "reverted" && !kindOf(row).isBatch) || (kindOf(row).locksSession && state !== "mined")
  const together = settledNow
    .filter(each => !isAlone(each))
    .flatMap(each => [each, ...settledCalls(each, calls.get(each.row.id) ?? [])])
  changed += await write(ctx, lane, together)
  const byTrigger = settledNow
    .filter(({ receipt }) => !receipt.uses)
    .flatMap(({ row, receipt }) => (calls.get(row.id) ?? []).map(call => ({ ...call, txHash: receipt.txHash })))
  reportEnds(ctx, lane, byTrigger)
  // Each of these gets a separate transaction. A revert also changes books and creates a successor, and the end of a
  // checkout's relay locks its session.
  for (const each of settledNow.filter(isAlone)) changed += await writeAlone(ctx, lane, each)
  return { changed, looked: [...open, ...displaced].flatMap(row => [row, ...(calls.get(row.id) ?? [])]) }
}

/**
 * Whether a payout's block alone can make the payout final. The payout's receipt was read when the payout was mined,
 * and a block's hash covers its receipts. The receipt is read again if the payout failed, or if no endpoint reported
 * its cost.
 */
const endsByBlock = (row: OpenPayout, latest: bigint): boolean =>
  row.state === "mined" && row.nonce < latest && row.succeeded === true && row.gas_cost !== null

/**
 * Returns the final state of a payout if endpoints agree on its block and report it as final. Returns an empty list if
 * they report another block or none.
 */
function finalAsMined(row: OpenPayout, quorum: Quorum): Settled[] {
  const { tx_hash: txHash, block_number: blockNumber, block_hash: blockHash } = row
  if (txHash === null || blockNumber === null || blockHash === null || blockNumber > quorum.finalized) return []
  if (quorum.blockAt(blockNumber)?.block.hash !== blockHash || row.empty.includes(txHash)) return []
  return [{ row, receipt: { txHash, blockNumber, blockHash, succeeded: true }, state: "final" }]
}

/**
 * Returns the states that a batch's receipt gives its calls. A failed call stays `mined` until the block is final. If
 * the receipt was not read again, a trigger ends the calls together with their batch. The trigger uses the rows that
 * were written when the batch was mined.
 */
function settledCalls({ row: batch, receipt, state }: Settled, calls: readonly BatchCall[]): Settled[] {
  const { txHash, blockNumber, blockHash, uses } = receipt
  if (!uses) return []
  return calls.map(call => {
    const succeeded = receipt.succeeded && isUsedIn({ uses }, call)
    return {
      row: { ...batch, ...call },
      receipt: { txHash, blockNumber, blockHash, succeeded },
      state: state === "final" && !succeeded ? "reverted" : state,
    }
  })
}

/** Counts and traces the calls that a trigger ended together with their batch. */
function reportEnds(ctx: Context, lane: Lane, calls: readonly (BatchCall & { txHash: Hash })[]): void {
  const endOf = ({ succeeded }: BatchCall) => (succeeded ? "final" : "reverted")
  for (const call of calls) payoutEnds.inc({ network: lane.chain.name, wallet: call.lane, end: endOf(call) })
  traceEnds(ctx, lane, unixMs(), calls, endOf)
}

/** Adds the confirmation step to the traces of these payouts. */
function traceEnds<P extends Traced & { txHash: Hash }>(
  ctx: Pick<TxContext, "tracing" | "onCommit">,
  { chain }: LaneInfo,
  startMs: number,
  payouts: readonly P[],
  stateOf: (payout: P) => string | undefined,
): void {
  const step = { name: "confirm payout", startMs, attributes: { "sluice.network": chain.name } }
  tracePayouts(ctx, step, payouts, payout => {
    const state = stateOf(payout)
    const attributes = { "sluice.payout.state": state, "sluice.transaction.hash": payout.txHash }
    return { attributes, error: state === "reverted" ? state : undefined }
  })
}

/** Writes one change in its own transaction, and creates the successor of a payout that failed. */
const writeAlone = (ctx: Context, lane: LaneInfo, each: Settled): Promise<number> =>
  inTransaction(ctx, async ctx => {
    const owners = await lane.lockOwners(ctx, each.row)
    const written = await write(ctx, lane, [each])
    if (written === 0 || each.state !== "reverted") return written
    reportRevert(ctx, each.row)
    if (kindOf(each.row).afterRevert === "again") await lane.onReverted(ctx, each.row, owners)
    return written
  })

/** Logs an unexpected revert. */
function reportRevert(ctx: TxContext, row: OpenPayout): void {
  if (kindOf(row).afterRevert === "ordinary") return
  ctx.log.error(
    { payoutId: row.id, paymentId: row.payment_id, hash: row.hashes[0] },
    "a payout reverted on chain, or its nonce was used up",
  )
}

const learn = (quorum: Quorum, rows: readonly (Pick<OpenPayout, "block_number"> & Partial<OpenPayout>)[]) =>
  quorum.learn(
    rows.flatMap(row => row.block_number ?? []),
    rows.flatMap(row => row.hashes ?? []),
  )

/**
 * Returns mined payouts whose block is no longer canonical. Blocks are chained, so if the highest block is canonical,
 * all of them are. So a quiet round reads one block.
 */
async function displacedPayouts(
  ctx: Context,
  wallet: Row<"wallets">,
  quorum: Quorum,
  [top]: readonly Pick<OpenPayout, "block_number" | "block_hash">[],
): Promise<OpenPayout[]> {
  if (!top || top.block_number === null) return []
  if (quorum.blockAt(top.block_number)?.block.hash === top.block_hash) return []
  const mined = await readOpenPayouts(ctx, wallet, "", sql`i.state = 'mined'`)
  await quorum.learn(
    mined.flatMap(row => row.block_number ?? []),
    [],
  )
  return mined.filter(row => quorum.blockAt(row.block_number ?? -1n)?.block.hash !== row.block_hash)
}

/**
 * The state that a receipt gives a payout. Without `transfers`, the amounts that were written when it was mined stay.
 */
interface Settled {
  row: OpenPayout
  receipt: Pick<Receipt, "txHash" | "blockNumber" | "blockHash" | "succeeded"> & Partial<Receipt>
  state: "mined" | "final" | "reverted"
}

const isPaid = (row: OpenPayout, { succeeded, txHash }: Receipt): boolean => succeeded && !row.empty.includes(txHash)

/**
 * Whether the call succeeded without the transfer for which it was made, so that only a person can decide. Only the
 * lane's token is checked, because a payout in a token that emits no event must not occupy a slot in flight forever.
 */
const lacksTransfer = ({ token }: Lane, row: OpenPayout, receipt: Receipt, calls: readonly BatchCall[] = []): boolean =>
  isPaid(row, receipt) &&
  row.token === token &&
  (kindOf(row).isBatch ? !hasAllTransfers(receipt, calls) : movedBy(receipt, row) === undefined)

/**
 * Reports that the transfer is missing. The time is written only once, so the alarm stays on and is logged once, no
 * matter how often the receipt is read.
 */
async function reportMissing(ctx: Context, { id }: OpenPayout, txHash: Hash): Promise<void> {
  const noted = await ctx.db
    .updateTable("payouts")
    .set({ transfer_missing_at: ctx.now() })
    .where("id", "=", id)
    .where("transfer_missing_at", "is", null)
    .executeTakeFirst()
  if (noted.numUpdatedRows > 0n) ctx.log.error({ payoutId: id, txHash }, "a payout was mined without its transfer")
}

/** Returns the change that a receipt causes; an empty list if the change is already written. */
function judge(row: OpenPayout, receipt: Receipt, quorum: Quorum): Settled[] {
  const { txHash, blockNumber, blockHash } = receipt
  const paid = isPaid(row, receipt)
  const state = blockNumber > quorum.finalized ? "mined" : paid ? "final" : "reverted"
  if (state === row.state && blockHash === row.block_hash && txHash === row.tx_hash) return []
  return [{ row, receipt: { ...receipt, succeeded: paid }, state }]
}

/**
 * Writes changes, and returns how many payouts changed. First locks the rows, always in the same order. Otherwise two
 * workers with overlapping leases could list the rows in different orders and deadlock.
 */
async function write(ctx: TxContext, lane: LaneInfo, settled: readonly Settled[]): Promise<number> {
  if (settled.length === 0) return 0
  const rows = settled.map(({ row, receipt, state }) => ({
    id: row.id,
    state,
    tx_hash: receipt.txHash,
    block_number: `${receipt.blockNumber}`,
    block_hash: receipt.blockHash,
    succeeded: receipt.succeeded,
    cost: receipt.cost?.toString() ?? null,
    amount: `${(kindOf(row).movesRest && receipt.succeeded && movedBy(receipt, row)) || row.amount}`,
  }))
  const ids = settled.map(({ row }) => row.id)
  const startMs = unixMs()
  for (const { row, receipt, state } of settled)
    if (state === "reverted" && kindOf(row).afterRevert === "ordinary")
      ctx.log.warn({ payoutId: row.id, hash: receipt.txHash }, "a settlement failed on chain, or its nonce was used up")
  const written = await sql<{ id: string; state: string; lane: LaneName; kind: PayoutKindName }>`
    /* named: confirm_payouts */ update payouts i set state = s.state, tx_hash = s.tx_hash, block_number = s.block_number, block_hash = s.block_hash,
      succeeded = s.succeeded, preempted = case when i.block_hash = s.block_hash then i.preempted end, amount = s.amount, transfer_missing_at = null, gas_cost = coalesce(s.cost, i.gas_cost),
      gas_cost_at = coalesce(i.gas_cost_at, case when s.cost is not null then ${ctx.now()}::timestamptz end),
      updated_at = ${ctx.now()}
    from (${rowsParameter(rows, "id uuid, state text, tx_hash text, block_number bigint, block_hash text, succeeded boolean, cost numeric, amount numeric")}) s
    where i.id = s.id and i.id in (select id from payouts where id = any(${sqlArray("uuid", ids)})
        order by id for no key update) and i.state in ('assigned', 'mined')
    returning i.id, i.state, i.lane, i.kind`.execute(ctx.db)
  // A batch is not counted, but its calls are.
  for (const { state, lane: wallet, kind } of written.rows)
    if (state !== "mined" && !kindOf({ kind }).isBatch) payoutEnds.inc({ network: lane.chain.name, wallet, end: state })
  const states = new Map(written.rows.map(({ id, state }) => [id, state]))
  const ours = settled.flatMap(({ row, receipt }) => (states.has(row.id) ? { ...row, txHash: receipt.txHash } : []))
  traceEnds(ctx, lane, startMs, ours, ({ id }) => states.get(id))
  return written.rows.length
}

/**
 * Returns how much the payout's transfer moved, in base units; undefined if the receipt has no such transfer. A relay's
 * transfer comes from its payer. A void gives back everything that is left, which is more than expected if a reorg made
 * an earlier capture fail.
 */
const movedBy = (
  { transfers = [] }: Settled["receipt"],
  row: Pick<Row<"payouts">, "kind" | "token" | "recipient" | "amount" | "payer">,
): bigint | undefined =>
  transfers.find(
    ({ token, from, to, value }) =>
      token === row.token &&
      to === row.recipient &&
      (value === row.amount || kindOf(row).movesRest) &&
      (!row.payer || from === row.payer),
  )?.value

/**
 * Whether endpoints agree on another block at the height of a payout's block. An unused nonce or a missing receipt
 * proves nothing, because a node that lags some blocks reports both. If they counted, the merchant would be notified of
 * a reversal that never happened.
 */
function isDisplaced(row: OpenPayout, quorum: Quorum): boolean {
  const canonical = quorum.blockAt(row.block_number ?? -1n)?.block
  return canonical !== undefined && canonical.hash !== row.block_hash
}

/**
 * Halts the wallet if none of our attempts used the finalized nonce `foreign`. Either an old backup was restored, or
 * someone else signs with this key.
 */
async function suspectForeign(
  ctx: Context,
  { chain }: Lane,
  wallet: Row<"wallets">,
  foreign: bigint | undefined,
): Promise<void> {
  const now = ctx.now()
  const since = wallet.suspect_at
  const isForeign = foreign !== undefined
  if (isForeign && since && now.getTime() - since.getTime() >= SUSPICION_MS) {
    const words = `nonce ${foreign} was used by a transaction that this database does not know`
    return await haltWallet(ctx, chain, wallet, "foreign_nonce", words)
  }
  if (isForeign === (since !== null)) return
  await ctx.db
    .updateTable("wallets")
    .set({ suspect_at: isForeign ? now : null })
    .where("id", "=", wallet.id)
    .execute()
}
