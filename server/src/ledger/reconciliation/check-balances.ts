/**
 * Compares deposits' balances at one finalized block with the sums of their rows up to that block. First tries to
 * explain a difference by payouts in flight, by a row that receipts contradict, or by a log that the scan missed.
 */
import { sql } from "kysely"
import { decodeFunctionResult, encodeFunctionData, erc20Abi } from "viem"
import { ask, awake, type Endpoint } from "../../platform/chain/endpoints.ts"
import type { Address } from "../../platform/chain/hex.ts"
import { multicall, readMulticall } from "../../platform/chain/multicall.ts"
import type { Network } from "../../platform/chain/networks.ts"
import type { Quorum } from "../../platform/chain/quorum.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import { quorumOf } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { type DepositSums, depositSums } from "../deposits/sum-deposits.ts"
import { checkPayout, signedPayouts } from "../payouts/check-signed-transactions.ts"
import type { SellingContext } from "../settlement/sellable.ts"
import { checkAssertions, outflowAssertion, payoutAssertion, transferAssertion } from "./check-receipts.ts"
import { compareLogs } from "./compare-logs.ts"
import type { Compared, Finding } from "./report.ts"

const ADDRESSES_PER_CALL = 500
/** How many of a deposit's newest rows are compared individually. The daily pass compares all rows. */
const ROWS_OF_A_DEPOSIT = 500
/**
 * For how many deposits each call compares the rows, starting with those that lack money. Dust makes a deposit differ,
 * and anyone can send dust to every address.
 */
const DEPOSITS_BY_ROWS = 10
const WINDOWS_OF_DEPOSITS = 50
/**
 * Missing money without an explanation must be seen twice, this far apart, because an endpoint may index a log late.
 */
const UNEXPLAINED_MS = 600_000

type Deposit = Row<"deposits">

/**
 * Since when deposits lack money without explanation, by id. This map is in memory, so after a restart two more
 * sightings are needed.
 */
export const unexplained = new Map<string, number>()

/** Compares deposits at the quorum's finalized block. */
export async function checkBalances(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  deposits: readonly Deposit[],
): Promise<Compared> {
  let unproven: string | undefined
  for (let start = 0; start < deposits.length; start += ADDRESSES_PER_CALL) {
    const part = deposits.slice(start, start + ADDRESSES_PER_CALL)
    const reported = await balancesByEndpoint(ctx, network, part, quorum.finalized)
    if (reported.size < quorumOf(network)) {
      unproven ??= `too few endpoints report the balances of deposits at block ${quorum.finalized}`
      continue
    }
    const sums = await sumsOf(ctx, network, part, quorum.finalized)
    const agreeing: bigint[] = []
    const differing: Differing[] = []
    for (const deposit of part) {
      const sum = sums.get(deposit.id)
      if (!sum) continue
      const balance = agreedBalance(network, reported, deposit)
      if (balance === undefined) unproven ??= contradiction(network, reported, deposit, quorum.finalized)
      else if (balance === sum.came - sum.went) agreeing.push(deposit.id)
      // A deposit with a payout or transfer in flight is compared later.
      else if (!sum.inFlight) differing.push({ deposit, balance, ...sum })
    }
    await balanced(ctx, agreeing, quorum.finalized)
    const compared = await explain(ctx, network, quorum, differing)
    if (compared.finding) return compared
    unproven ??= compared.unproven
  }
  return unproven === undefined ? {} : { unproven }
}

/** A deposit whose balance differs from its rows. */
interface Differing extends DepositSums {
  deposit: Deposit
  balance: bigint
}

async function balanced(ctx: Context, ids: readonly bigint[], at: bigint): Promise<void> {
  for (const id of ids) unexplained.delete(`${id}`)
  if (ids.length === 0) return
  await sql`update deposits set balanced_number = ${at}
    where id = any(${sqlArray("bigint", ids)}) and balanced_number is distinct from ${at}::bigint`.execute(ctx.db)
}

/**
 * Balances by address, from each endpoint that has the block's state. The outer key is the endpoint's position in the
 * setting, from 0.
 */
type Reported = ReadonlyMap<number, ReadonlyMap<Address, bigint>>

async function balancesByEndpoint(
  ctx: Context,
  network: Network,
  deposits: readonly Deposit[],
  at: bigint,
): Promise<Reported> {
  const answers = await Promise.all(
    awake(network.endpoints).map(async endpoint => {
      const balances = await balancesAt(ctx, network, endpoint, deposits, at)
      return balances ? [[network.endpoints.indexOf(endpoint), balances] as const] : []
    }),
  )
  return new Map(answers.flat())
}

/**
 * Returns the balance that a quorum of the endpoints reports, and more endpoints than any other balance; undefined
 * without such a balance.
 */
function agreedBalance(network: Network, reported: Reported, { address }: Deposit): bigint | undefined {
  const values = [...reported.values()].flatMap(balances => balances.get(address) ?? [])
  const groups = [...Map.groupBy(values, value => value).values()].sort((a, b) => b.length - a.length)
  const [first, second] = groups
  if (!first || first.length < quorumOf(network) || second?.length === first.length) return undefined
  return first[0]
}

/** Describes what each endpoint reports when they disagree. */
function contradiction({ endpoints }: Network, reported: Reported, { id, address }: Deposit, at: bigint): string {
  const said = [...reported].map(
    ([i, balances]) => `endpoint ${i + 1} of ${endpoints.length}: ${balances.get(address) ?? "nothing"}`,
  )
  return `the RPC endpoints do not agree on what the deposit ${address} (row ${id} of deposits) holds at block ${at} (${said.join(", ")})`
}

async function balancesAt(
  ctx: Context,
  network: Network,
  endpoint: Endpoint,
  deposits: readonly Pick<Deposit, "address">[],
  at: bigint,
): Promise<Map<Address, bigint> | undefined> {
  const functionName = "balanceOf"
  const to = network.token.address
  const reads = deposits.map(({ address }) => ({
    to,
    data: encodeFunctionData({ abi: erc20Abi, functionName, args: [address] }),
  }))
  const [result] = (await ask(endpoint, [multicall(reads, at)], ctx.signal)) ?? []
  if (!result?.ok) return undefined
  try {
    const values = readMulticall(result.value).map(data =>
      data ? decodeFunctionResult({ abi: erc20Abi, functionName, data }) : undefined,
    )
    return new Map(
      deposits.flatMap(({ address }, i) => {
        const value = values[i]
        return value === undefined ? [] : [[address, value] as const]
      }),
    )
  } catch {
    return undefined
  }
}

const sumsOf = (ctx: Context, network: Network, deposits: readonly Deposit[], at: bigint) =>
  depositSums(
    ctx,
    network.token.address,
    deposits.map(({ id }) => id),
    at,
  )

/**
 * Explains why deposits differ from their rows. Handles all such deposits together, because strangers control how many
 * deposits differ.
 */
async function explain(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  differing: readonly Differing[],
): Promise<Compared> {
  if (differing.length === 0) return {}
  const { sure, unproven } = await readAgain(ctx, network, quorum, differing)
  if (sure.length === 0) return unproven === undefined ? {} : { unproven }
  const lacking = sure.filter(lacksMoney)
  const byRows = [...lacking, ...sure.filter(each => !lacksMoney(each))].slice(0, DEPOSITS_BY_ROWS)
  for (const { deposit } of byRows) {
    const rows = await checkRowsOf(ctx, network, quorum, deposit)
    if (rows.finding) return { finding: rows.finding }
  }
  const deposits = sure.map(({ deposit }) => deposit)
  const logs = await compareSince(ctx, network, quorum, deposits)
  if (logs.finding ?? logs.unproven) return logs
  const sums = await sumsOf(ctx, network, deposits, quorum.finalized)
  let open = unproven
  for (const each of sure) {
    const { deposit, balance } = each
    const now = sums.get(deposit.id)
    // By now, a log that the scan missed is stored, as a transfer in flight or as an outflow.
    if (!now || now.inFlight || balance === now.came - now.went) continue
    const words = wordsOf(quorum, each)
    // A surplus over the rows is no loss, so it is no reason to halt.
    if (balance < now.came - now.went) {
      const id = `${deposit.id}`
      const since = unexplained.get(id) ?? ctx.now().getTime()
      unexplained.set(id, since)
      if (ctx.now().getTime() - since >= UNEXPLAINED_MS) return { finding: { table: "deposits", id, words } }
    }
    open ??= words
  }
  return open === undefined ? {} : { unproven: open }
}

const lacksMoney = ({ balance, came, went }: Differing): boolean => balance < came - went

const wordsOf = ({ finalized }: Quorum, { deposit, balance, came, went }: Differing): string =>
  `the deposit ${deposit.address} (row ${deposit.id} of deposits) holds ${balance} at block ${finalized}, and its rows say ${came} in, ${went} out`

/** Rereads the balances from all endpoints; returns the deposits whose difference a quorum confirms. */
async function readAgain(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  differing: readonly Differing[],
): Promise<{ sure: Differing[]; unproven: string | undefined }> {
  const deposits = differing.map(({ deposit }) => deposit)
  const reported = await Promise.all(
    network.endpoints.map(each => balancesAt(ctx, network, each, deposits, quorum.finalized)),
  )
  const isSure = ({ deposit, balance }: Differing) =>
    reported.filter(each => each?.get(deposit.address) === balance).length >= quorumOf(network)
  const sure = differing.filter(isSure)
  const doubtful = differing.find(each => !isSure(each))
  return { sure, unproven: doubtful && wordsOf(quorum, doubtful) }
}

/** Finds the first of a deposit's newest rows that its receipt contradicts, or that differs from the signed bytes. */
export async function checkRowsOf(
  ctx: Context,
  network: Network,
  quorum: Quorum,
  deposit: Deposit,
): Promise<{ finding?: Finding }> {
  const { rows: transfers } = await sql<Row<"transfers">>`select * from transfers where deposit_id = ${deposit.id}
    and state = 'final' order by block_number desc limit ${ROWS_OF_A_DEPOSIT}`.execute(ctx.db)
  const of = sql`i.deposit_id = ${deposit.id} and i.state in ('assigned', 'mined', 'final', 'reverted')`
  const payouts = await signedPayouts(ctx, network, of, ROWS_OF_A_DEPOSIT)
  for (const payout of payouts) {
    const finding = checkPayout(payout)
    if (finding) return { finding }
  }
  const outflows = await ctx.db
    .selectFrom("outflows")
    .selectAll()
    .where("deposit_id", "=", deposit.id)
    .orderBy("block_number", "desc")
    .limit(ROWS_OF_A_DEPOSIT)
    .execute()
  return await checkAssertions(ctx, network, quorum, [
    ...transfers.map(transferAssertion),
    ...payouts
      .filter(({ state, token }) => ["final", "reverted"].includes(state) && token === network.token.address)
      .map(payoutAssertion),
    ...outflows.map(row => outflowAssertion({ ...row, deposit: deposit.address })),
  ])
}

/** Compares deposits' logs since the earliest block at which any of these deposits last agreed. */
async function compareSince(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  deposits: readonly Deposit[],
): Promise<Compared> {
  const range = network.endpoints.reduce((low, { logRange }) => (logRange < low ? logRange : low), 10_000n)
  const furthest = quorum.finalized - range * BigInt(WINDOWS_OF_DEPOSITS)
  const begins = deposits.map(each => (each.balanced_number === null ? furthest : each.balanced_number + 1n))
  let from = begins.reduce((low, number) => (number < low ? number : low), quorum.finalized)
  if (from < furthest) from = furthest
  if (from < 0n) from = 0n
  for (; from <= quorum.finalized; from += range) {
    const end = from + range - 1n
    const to = end < quorum.finalized ? end : quorum.finalized
    try {
      const compared = await compareLogs(ctx, network, quorum, deposits, { from, to })
      if (compared.finding ?? compared.unproven) return compared
    } catch (error) {
      if (!(error instanceof RpcError) || ctx.signal.aborted) throw error
      return { unproven: error.message }
    }
  }
  return {}
}
