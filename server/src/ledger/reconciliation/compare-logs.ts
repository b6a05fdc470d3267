/**
 * Compares the logs of finalized blocks with the rows, both ways: deposits' outgoing transfers with payouts, incoming
 * ones with transfers. Stores transfers that the scan missed. Also records recoveries, and money that a merchant gave
 * back without the service. An outflow without a payout, or a row that the chain contradicts, is a finding.
 */
import { sql } from "kysely"
import { keyOf, reachedBy, statementOf } from "../../platform/chain/agreement.ts"
import { awake, type Endpoint } from "../../platform/chain/endpoints.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Quorum, QuorumView } from "../../platform/chain/quorum.ts"
import { readLogs, transfersOf } from "../../platform/chain/read-logs.ts"
import type { Transfer } from "../../platform/chain/transfers.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { outgoingKinds } from "../deposits/sum-deposits.ts"
import { storeTransfers, wakeSold } from "../scanner/queries.ts"
import type { SellingContext } from "../settlement/sellable.ts"
import { checkAssertions, inParts, payoutAssertion, provenAmong, transferAssertion } from "./check-receipts.ts"
import { type Blocks, endOfStep } from "./list-compared-deposits.ts"
import { type KnownDeposit, notedOutflows, noteOutflows, type Stranger } from "./note-outflows.ts"
import type { Compared } from "./report.ts"

/** How many final transfers of the compared deposits are in memory at a time. A single block may have more. */
const TRANSFERS_AT_ONCE = 10_000

/** Compares one range of blocks, including both ends, for these deposits of the network. */
export async function compareLogs(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  deposits: readonly KnownDeposit[],
  { from, to }: Blocks,
): Promise<Compared> {
  const ids = deposits.map(deposit => deposit.id)
  for (let start = from; start <= to; ) {
    const end = await endOfStep(ctx, ids, { from: start, to }, TRANSFERS_AT_ONCE)
    const compared = await compareStep(ctx, network, quorum, deposits, { from: start, to: end, ids })
    if (compared.comparedTo === undefined) return compared
    start = compared.comparedTo + 1n
  }
  return {}
}

/**
 * Compares as many blocks as fit in one step. `comparedTo` is the last of these blocks, once their logs and rows agree.
 */
async function compareStep(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  deposits: readonly KnownDeposit[],
  asked: Range,
): Promise<Compared & { comparedTo?: bigint }> {
  const logs = await logsOf(ctx, network, deposits, asked)
  if (!logs) return { unproven: "the books can't be compared: endpoints do not answer, or do not agree on the logs" }
  const range = { ...asked, to: logs.readTo }
  const byAddress = new Map(deposits.map(deposit => [deposit.address, deposit]))
  const out = await compareOutgoing(ctx, network, quorum, byAddress, logs.outgoing, range)
  if (out.finding ?? out.unproven) return out
  const compared = await compareIncoming(ctx, network, quorum, byAddress, logs.incoming, range)
  return (compared.finding ?? compared.unproven) ? compared : { comparedTo: range.to }
}

/** A range of blocks, and the deposits whose logs in it are compared. */
interface Range extends Blocks {
  ids: readonly bigint[]
}

/** Logs up to the last block that a quorum of endpoints has read. */
interface Logs {
  outgoing: Transfer[]
  incoming: Transfer[]
  readTo: bigint
}

/**
 * Returns the logs that a quorum of endpoints reports. Returns undefined if a quorum neither confirms nor denies a log,
 * or if too few endpoints responded. So an endpoint can't hide a log by omitting it, or stop the comparison by
 * inventing one. Several reads may be needed, because strangers can make any number of transfers to an address.
 */
async function logsOf(
  ctx: Context,
  network: Network,
  deposits: readonly KnownDeposit[],
  blocks: Blocks,
): Promise<Logs | undefined> {
  const needed = quorumOf(network)
  const addresses = deposits.map(deposit => deposit.address)
  const readAll = (isWide: boolean) =>
    Promise.all(awake(network.endpoints).map(endpoint => logsBy(ctx, network, endpoint, addresses, blocks, isWide)))
  let answers = await readAll(false)
  // A quorum says that one address has too many logs in one block.
  if (answers.filter(({ isTooLarge }) => isTooLarge).length >= needed) answers = await readAll(true)
  const readTo = reachedBy(
    answers.map(answer => answer.readTo),
    needed,
  )
  if (readTo === undefined || readTo < blocks.from) return undefined
  const complete = answers.filter(answer => answer.readTo >= readTo)
  const pick = (lists: Transfer[][]): Transfer[] | undefined => {
    const inTime = lists.flat().filter(({ blockNumber }) => blockNumber <= readTo)
    const votes = [...Map.groupBy(inTime, statementOf).values()]
    const isOpen = votes.some(same => same.length < needed && lists.length - same.length < needed)
    return isOpen ? undefined : votes.flatMap(same => (same.length >= needed ? same.slice(0, 1) : []))
  }
  const outgoing = pick(complete.map(answer => answer.outgoing))
  const incoming = pick(complete.map(answer => answer.incoming))
  return outgoing && incoming ? { outgoing, incoming, readTo } : undefined
}

/** Reads the logs of one endpoint, outgoing ones first. */
async function logsBy(
  ctx: Context,
  { token }: Network,
  endpoint: Endpoint,
  addresses: readonly Address[],
  { from, to }: Blocks,
  isWide: boolean,
): Promise<Logs & { isTooLarge: boolean }> {
  const query = { token: token.address, addresses, fromBlock: from, isWide }
  const left = await readLogs(endpoint, { ...query, toBlock: to, has: { number: to }, side: "from" }, ctx.signal)
  const outgoing = transfersOf(left)
  if (left.readTo < from) return { outgoing, incoming: [], readTo: left.readTo, isTooLarge: left.isTooLarge }
  const toBlock = left.readTo
  const came = await readLogs(endpoint, { ...query, toBlock, has: { number: toBlock }, side: "to" }, ctx.signal)
  return { outgoing, incoming: transfersOf(came), readTo: came.readTo, isTooLarge: came.isTooLarge }
}

type Ended = Row<"payouts"> & { deposit: Address; hashes: Hash[] }

async function compareOutgoing(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  deposits: ReadonlyMap<Address, KnownDeposit>,
  left: readonly Transfer[],
  range: Range,
): Promise<Compared> {
  const hashes = left.map(transfer => transfer.txHash)
  const known = await payoutsOf(ctx, network, hashes)
  const noted = new Map(
    (await notedOutflows(ctx, network, hashes)).map(row => [`${row.tx_hash} ${row.log_index}`, row]),
  )
  const places = known.flatMap(placesOf)
  const meant = Map.groupBy(places, ({ place }) => place)
  // The rows are in order, so the first payout of a transaction is the one that names it.
  const named = new Map(places.toReversed().map(({ hash, payout }) => [hash, payout]))
  const paid = new Set<string>()
  const strangers: Stranger[] = []
  const explained: Transfer[] = []
  for (const transfer of left) {
    const before = noted.get(`${transfer.txHash} ${transfer.logIndex}`)
    if (before?.reason === "given_back") explained.push(transfer)
    if (before?.payout_id) {
      paid.add(before.payout_id)
      continue
    }
    const same = (meant.get(placeOf(transfer)) ?? []).map(each => each.payout)
    const payout = same.find(row => !paid.has(row.id)) ?? same[0]
    if (payout && !paid.has(payout.id) && (payout.state !== "final" || payout.tx_hash === transfer.txHash)) {
      paid.add(payout.id)
      if (payout.state !== "reverted") continue
    }
    const deposit = deposits.get(transfer.from)
    if (before === undefined && deposit) {
      const words = strangerMessage(transfer, payout, named.get(transfer.txHash))
      strangers.push({ transfer, deposit, isNamed: !!payout, words })
    }
  }
  const outflows = await noteOutflows(ctx, network, quorum, strangers, explained)
  if (outflows.finding ?? outflows.unproven) return outflows
  const finals = await endedIn(ctx, network, range)
  const missing = finals.filter(row => !paid.has(row.id) && row.state === "final").map(payoutAssertion)
  const { finding, unproven } = await checkAssertions(ctx, network, quorum, missing)
  if (finding) return { finding }
  return unproven === undefined ? {} : { unproven }
}

/** Returns the movement that a payout intends, once for each transaction that was signed for it. */
const placesOf = (payout: Ended) =>
  payout.hashes.map(hash => ({ payout, hash, place: `${hash} ${payout.deposit} ${payout.recipient} ${payout.amount}` }))

const placeOf = ({ txHash, from, to, value }: Transfer): string => `${txHash} ${from} ${to} ${value}`

function strangerMessage(transfer: Transfer, payout: Ended | undefined, named: Ended | undefined): string {
  if (payout?.state === "reverted")
    return `the row ${payout.id} of payouts is called reverted, and ${transfer.txHash} paid it`
  if (payout) return `the payout ${payout.id} was paid twice, by ${transfer.txHash} too`
  if (named) return `the transfer ${transfer.txHash} is not what the payout ${named.id} meant`
  return `the transfer ${transfer.txHash} left a deposit without a payout`
}

/**
 * Returns the payouts to which these transactions belong, as far as they are ours. A return that the merchant made
 * without the service has no nonce, but its outflow links to it.
 */
async function payoutsOf(ctx: Context, network: Network, hashes: readonly Hash[]): Promise<Ended[]> {
  if (hashes.length === 0) return []
  const among = sql`any(${sqlArray("text", hashes)})`
  const { rows } = await sql<Ended>`
    select i.*, d.address as deposit, array_agg(h.hash::text) as hashes
    from (select payout_id, hash from transaction_attempts where hash = ${among}
      union select id, tx_hash from payouts where tx_hash = ${among}) h
      join payouts i on i.id = h.payout_id join deposits d on d.id = i.deposit_id
    where i.chain_id = ${network.chainId} and i.token = ${network.token.address} and i.nonce is not null
    group by i.id, d.address
    order by i.id`.execute(ctx.db)
  return rows
}

/**
 * Returns final payouts in the settlement token, because the logs of this token are compared. Selects the payouts by
 * the block in their rows.
 */
async function endedIn(ctx: Context, network: Network, { from, to, ids }: Range): Promise<Ended[]> {
  const { rows } = await sql<Ended>`
    select i.*, d.address as deposit from payouts i join deposits d on d.id = i.deposit_id
    where i.chain_id = ${network.chainId} and i.state = 'final' and i.block_number between ${from} and ${to}
      and i.kind in ${outgoingKinds()} and i.token = ${network.token.address} and i.deposit_id = any(${sqlArray("bigint", ids)})`.execute(
    ctx.db,
  )
  return rows
}

async function compareIncoming(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  deposits: ReadonlyMap<Address, KnownDeposit>,
  came: readonly Transfer[],
  range: Range,
): Promise<Compared> {
  const rows = new Map((await rowsOf(ctx, network, came)).map(row => [rowKey(row), row]))
  const missed: Transfer[] = []
  const doubtful = new Map<bigint, Row<"transfers">>()
  for (const transfer of came) {
    const row = rows.get(keyOf(transfer))
    const isSettled = row?.state === "final" || (row && row.state !== "gone" && row.block_hash === transfer.blockHash)
    if (!row || !isSettled) missed.push(transfer)
    else if (
      row.value !== transfer.value ||
      row.from_address !== transfer.from ||
      row.block_hash !== transfer.blockHash
    )
      doubtful.set(row.id, row)
  }
  const stored = await storeMissed(ctx, network, quorum, deposits, missed)
  const seen = new Set(came.map(keyOf))
  for (const row of await finalIn(ctx, network, range)) if (!seen.has(rowKey(row))) doubtful.set(row.id, row)
  const checked = await checkAssertions(ctx, network, quorum, [...doubtful.values()].map(transferAssertion))
  if ((checked.finding ?? checked.unproven) || stored) return checked
  return { unproven: "a transfer to a deposit is not in the books, and not proven yet" }
}

const rowKey = (row: Row<"transfers">): string =>
  keyOf({ txHash: row.tx_hash, token: row.token, to: row.to_address, k: row.k })

const rowsOf = async (ctx: Context, network: Network, transfers: readonly Transfer[]): Promise<Row<"transfers">[]> => {
  if (transfers.length === 0) return []
  const { rows } = await sql<Row<"transfers">>`
    select * from transfers where chain_id = ${network.chainId}
      and tx_hash = any(${sqlArray("text", new Set(transfers.map(each => each.txHash)))})
      and to_address = any(${sqlArray("text", new Set(transfers.map(each => each.to)))})`.execute(ctx.db)
  return rows
}

const finalIn = async (ctx: Context, network: Network, { from, to, ids }: Range): Promise<Row<"transfers">[]> => {
  const { rows } = await sql<Row<"transfers">>`
    select * from transfers where chain_id = ${network.chainId} and state = 'final' and token = ${network.token.address}
      and block_number between ${from} and ${to} and deposit_id = any(${sqlArray("bigint", ids)})`.execute(ctx.db)
  return rows
}

/**
 * Stores transfers that the scan missed, just as the scan would have stored them, so that no payment is lost. Returns
 * false if a transfer was not proven.
 */
async function storeMissed(
  ctx: SellingContext,
  network: Network,
  view: QuorumView,
  deposits: ReadonlyMap<Address, KnownDeposit>,
  missed: readonly Transfer[],
): Promise<boolean> {
  let left = missed.length
  for await (const { quorum, part } of inParts(ctx, network, view, missed, ({ txHash }) => txHash)) {
    const proven = await provenAmong(network, quorum, part)
    const found = part.flatMap((transfer, i) => {
      const deposit = deposits.get(transfer.to)
      const blockTime = quorum.blockAt(transfer.blockNumber)?.block.time
      if (!deposit || !blockTime || !proven.has(i)) return []
      return [{ ...transfer, depositId: deposit.id, blockTime, isSingle: false }]
    })
    if (found.length > 0) await storeAsSeen(ctx, network, found)
    left -= found.length
  }
  return left === 0
}

type Found = Parameters<typeof storeTransfers>[2]

async function storeAsSeen(ctx: SellingContext, network: Network, found: Found): Promise<void> {
  const changed = await inTransaction(ctx, async ctx => {
    const ids = await storeTransfers(ctx, network, found)
    await wakeSold(ctx, ids, [])
    return ids
  })
  // Logs one line per transaction, because anyone can put a thousand transfers into one.
  for (const [txHash, transfers] of Map.groupBy(found, each => each.txHash))
    ctx.log.warn(
      { network: network.name, txHash, deposit: transfers[0]?.to, transfers: transfers.length },
      "a transfer that the scan missed is stored",
    )
  if (changed.length > 0) await ctx.wakes.wake("verify")
}
