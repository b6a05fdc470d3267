/**
 * The reconciliation of one network. Every hour, the reconciliation compares the database with itself, unfinished
 * payouts with their calldata and signed bytes, and the balances of deposits that had movements. A daily pass, which is
 * split over rounds, compares each deposit's terms and balance, and each final transfer and ended payout with its
 * receipt. A proven difference halts the payout wallet and names the row.
 */
import { setImmediate as nextTurn } from "node:timers/promises"
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum, type Quorum } from "../../platform/chain/quorum.ts"
import { RpcError } from "../../platform/chain/rpc.ts"
import { readWalletState } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { isDue, isHeld, withLease } from "../../platform/jobs/claim.ts"
import { payoutAlarms } from "../../platform/metrics.ts"
import { payeesOfSets } from "../deposits/make-deposits.ts"
import { outgoingKinds } from "../deposits/sum-deposits.ts"
import { checkPayout, checkTerms, signedPayouts } from "../payouts/check-signed-transactions.ts"
import type { SellingContext } from "../settlement/sellable.ts"
import { checkBalances, checkRowsOf, unexplained } from "./check-balances.ts"
import { checkConsistency, depositsBehind } from "./check-consistency.ts"
import { checkEscrows } from "./check-escrows.ts"
import { checkAssertions, outflowAssertion, payoutAssertion, transferAssertion } from "./check-receipts.ts"
import { type Compared, type Finding, haltRelayWallet, haltWallets, reportUnproven } from "./report.ts"

const HOUR_MS = 3_600_000
const DAY_MS = 24 * HOUR_MS
/** A round takes less than this. A round that lost its lease writes nothing, and its part is compared again. */
const LEASE_MS = 900_000
/**
 * The wait between the rounds of a pass. With 500 receipts of each kind a minute, a day covers 720,000 rows of each
 * kind.
 */
const ROUND_MS = 60_000
const RECEIPTS_PER_ROUND = 500
const DEPOSITS_PER_ROUND = 10_000
/** How many deposits, payouts with their signed bytes, or outflows are in memory at a time. */
const ROWS_AT_ONCE = 1_000
/** How many rows' hashes are compared without a pause, which takes some milliseconds. */
const HASHED_AT_ONCE = 20
const ZERO_ID = "00000000-0000-0000-0000-000000000000"

/**
 * Runs one round, and returns how many milliseconds the next round may wait. Without a `wallet`, the round only reports
 * and never halts.
 */
export async function reconcileRound(
  ctx: SellingContext,
  network: Network,
  wallet: Address | undefined,
): Promise<number> {
  const now = ctx.now()
  await ctx.db
    .insertInto("reconciliations")
    .values({ chain_id: network.chainId, hour_at: now, pass_at: now, run_at: now })
    .onConflict(conflict => conflict.doNothing())
    .execute()
  const nextRunAt = new Date(now.getTime() + ROUND_MS)
  const job = { table: "reconciliations", only: network.chainId, leaseMs: LEASE_MS, now, nextRunAt } as const
  await withLease(ctx.db, job, async claimed => {
    const round = { ctx, network, wallet }
    // The database is compared with itself even if no endpoint answers.
    const quorum = await openQuorumOrNone(ctx, network)
    const job = isDue(claimed.hour_at, now, HOUR_MS) ? await compareHourly(round, claimed, quorum) : claimed
    if (quorum) await continueMoved(round, job, quorum)
    if (quorum) await continuePass(round, job, quorum)
  })
  return ROUND_MS
}

interface Round {
  ctx: SellingContext
  network: Network
  wallet: Address | undefined
}

type Job = Row<"reconciliations">

async function update({ ctx }: Round, claimed: Job, change: Partial<Job>): Promise<Job> {
  await ctx.db.updateTable("reconciliations").set(change).where(isHeld("reconciliations", claimed)).execute()
  return { ...claimed, ...change }
}

async function openQuorumOrNone(ctx: SellingContext, network: Network): Promise<Quorum | undefined> {
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("block_number")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  try {
    return await openQuorum(network, cursor?.block_number ?? 0n, ctx.signal)
  } catch (error) {
    if (!(error instanceof RpcError) || ctx.signal.aborted) throw error
    reportUnproven(ctx, network, `no endpoint can be asked: ${error.message}`)
    return undefined
  }
}

async function halt(round: Round, findings: readonly (Finding | undefined)[]): Promise<void> {
  const { ctx, network } = round
  const found = findings.filter(finding => finding !== undefined)
  if (found.length === 0) return
  for (const { words } of found) ctx.log.fatal({ network: network.name, reason: words }, "the books do not agree")
  const words = found.map(finding => finding.words).join("; ")
  const wallets = await payoutWallets(round)
  await haltWallets(ctx, network, wallets, words)
  if (wallets.length === 0) payoutAlarms.inc({ network: network.name, wallet: "payout", reason: "books" })
}

/** Returns the wallets that move money out of deposits: ours, and those of earlier factories. */
async function payoutWallets({ ctx, network, wallet }: Round): Promise<Row<"wallets">[]> {
  const { rows } = await sql<Row<"wallets">>`
    select w.* from wallets w where w.chain_id = ${network.chainId} and (w.address = ${wallet ?? ""}
      or exists (select from payouts i where i.chain_id = w.chain_id and i.wallet = w.address and i.kind in ${outgoingKinds()}))`.execute(
    ctx.db,
  )
  return rows
}

/** Runs the hourly comparison, and returns the changed job. */
async function compareHourly(round: Round, claimed: Job, quorum: Quorum | undefined): Promise<Job> {
  const { ctx, network } = round
  const found: (Finding | undefined)[] = await checkConsistency(ctx, network.chainId)
  found.push(await firstWrongPayout(round))
  if (quorum)
    found.push(
      ...(await narrow(
        round,
        quorum,
        found.filter(finding => finding !== undefined),
      )),
    )
  // A contradiction within the database needs no endpoint.
  await halt(round, found)
  const hour = { hour_at: new Date(ctx.now().getTime() + HOUR_MS) }
  if (!quorum) return await update(round, claimed, hour)
  await halt(round, [await nonceGap(round)])
  await compareEscrows(round, quorum)
  // Blocks left over from the last hour come first. The next range starts where those blocks end.
  const moved = claimed.moved_to === null ? { moved_to: quorum.finalized, moved_position: 0n } : {}
  return await update(round, claimed, { ...hour, ...moved, moved_number: claimed.moved_number ?? quorum.finalized })
}

/** Compares the calldata and signed bytes of unfinished payouts with their rows. */
async function firstWrongPayout({ ctx, network }: Round): Promise<Finding | undefined> {
  let after = ZERO_ID
  for (;;) {
    const which = sql`i.id > ${after}::uuid and i.state in ('queued', 'held', 'assigned', 'mined')`
    const payouts = await signedPayouts(ctx, network, which, ROWS_AT_ONCE)
    const finding = await firstOf(payouts, checkPayout)
    const last = payouts.at(-1)
    if (finding || !last || payouts.length < ROWS_AT_ONCE) return finding
    after = last.id
  }
}

/**
 * Compares the balances of deposits with movements since the last hour, as many as fit in a round. The next round
 * continues after those deposits.
 */
async function continueMoved(round: Round, job: Job, quorum: Quorum): Promise<void> {
  const { ctx, network } = round
  const { moved_to: to, moved_number: since } = job
  let after = job.moved_position
  if (to === null || after === null || since === null) return
  for (let done = 0; done < DEPOSITS_PER_ROUND; done += ROWS_AT_ONCE) {
    const moved = await movedDeposits(ctx, network, { since, to, after })
    const { finding, unproven } = await checkBalances(ctx, network, quorum, moved)
    await halt(round, [finding])
    if (unproven) reportUnproven(ctx, network, unproven)
    const last = moved.at(-1)
    const isDone = !last || moved.length < ROWS_AT_ONCE
    await update(
      round,
      job,
      isDone ? { moved_number: to, moved_to: null, moved_position: null } : { moved_position: last.id },
    )
    if (isDone) return
    after = last.id
  }
}

/**
 * Compares escrows. A proven difference halts the escrow's relay wallet, because only that wallet can call the escrow.
 */
async function compareEscrows({ ctx, network }: Round, quorum: Quorum): Promise<void> {
  const { findings, unproven } = await checkEscrows(ctx, network, quorum)
  if (unproven) reportUnproven(ctx, network, unproven, {}, "relay")
  for (const [wallet, { words }] of findings) {
    ctx.log.fatal({ network: network.name, wallet, reason: words }, "the books do not agree")
    await haltRelayWallet(ctx, network, wallet, words)
  }
}

/** Finds the rows behind wrong sums. Sums do not show which row is wrong, but the chain may. */
async function narrow({ ctx, network }: Round, quorum: Quorum, found: readonly Finding[]): Promise<Finding[]> {
  const rows: Finding[] = []
  for (const deposit of await depositsBehind(ctx, found)) {
    const { finding } = await checkRowsOf(ctx, network, quorum, deposit).catch(none)
    if (finding) rows.push(finding)
  }
  return rows

  function none(error: unknown): { finding?: Finding } {
    if (!(error instanceof RpcError) || ctx.signal.aborted) throw error
    return {}
  }
}

/**
 * Finds a nonce gap, behind which no nonce can be mined. A nonce that another process used is no gap, because the chain
 * has that nonce.
 */
async function nonceGap({ ctx, network, wallet }: Round): Promise<Finding | undefined> {
  if (!wallet) return undefined
  const { rows } = await sql<{ id: number; next: bigint; signed: bigint | null }>`
    select w.id, w.next_nonce as next, max(a.nonce) + 1 as signed from wallets w
      left join transaction_attempts a on a.chain_id = w.chain_id and a.wallet = w.address
    where w.chain_id = ${network.chainId} and w.address = ${wallet} group by w.id`.execute(ctx.db)
  const [row] = rows
  if (!row || row.next === row.signed) return undefined
  const { latest, agreedLatest } = await readWalletState(network, wallet, ctx.signal)
  if (latest === undefined || agreedLatest === undefined || latest >= row.next) return undefined
  const words = `the row ${row.id} of wallets signs next with the nonce ${row.next}; the chain is at ${latest}, and nothing signed is between`
  return { table: "wallets", id: `${row.id}`, words }
}

/** Checks rows and returns the first finding. Pauses after a few rows, so that other work runs in between. */
async function firstOf<T>(rows: readonly T[], check: (row: T) => Finding | undefined): Promise<Finding | undefined> {
  for (const [i, row] of rows.entries()) {
    const finding = check(row)
    if (finding) return finding
    if ((i + 1) % HASHED_AT_ONCE === 0) await nextTurn()
  }
  return undefined
}

/**
 * Returns the next deposits, by id, that lack money, or that have a transfer or payout which became final in these
 * blocks.
 */
async function movedDeposits(
  ctx: SellingContext,
  { chainId }: Network,
  { since, to, after }: { since: bigint; to: bigint; after: bigint },
): Promise<Row<"deposits">[]> {
  const inBlocks = sql`chain_id = ${chainId} and state = 'final' and block_number > ${since} and block_number <= ${to}
    and deposit_id > ${after}`
  const part = sql`order by 1 limit ${ROWS_AT_ONCE}`
  const { rows } = await sql<Row<"deposits">>`
    select * from deposits where chain_id = ${chainId} and id > ${after} and id in (
      (select distinct deposit_id from transfers where ${inBlocks} ${part})
      union (select distinct deposit_id from payouts where ${inBlocks} ${part})
      union select unnest(${sqlArray("bigint", unexplained.keys())})) order by id limit ${ROWS_AT_ONCE}`.execute(ctx.db)
  return rows
}

/** Compares the next part of the daily pass. */
async function continuePass(round: Round, claimed: Job, quorum: Quorum): Promise<void> {
  const { ctx, network } = round
  const isOver =
    claimed.deposit_position === null && claimed.transfer_position === null && claimed.payout_position === null
  if (isOver && !isDue(claimed.pass_at, ctx.now(), DAY_MS)) return
  const begin = { deposit_position: 0n, transfer_position: 0n, payout_position: ZERO_ID }
  const at = isOver ? begin : claimed
  const next = {
    deposit_position: at.deposit_position === null ? null : await passDeposits(round, quorum, at.deposit_position),
    transfer_position: at.transfer_position === null ? null : await passTransfers(round, quorum, at.transfer_position),
    payout_position: at.payout_position === null ? null : await passPayouts(round, quorum, at.payout_position),
  }
  await update(round, claimed, {
    ...next,
    ...(isOver ? { pass_at: new Date(ctx.now().getTime() + DAY_MS) } : {}),
  })
  if (Object.values(next).every(position => position === null))
    ctx.log.info({ network: network.name }, "the daily comparison of the books is complete")
}

async function passDeposits(round: Round, quorum: Quorum, begin: bigint): Promise<bigint | null> {
  const { ctx, network } = round
  let after = begin
  for (let done = 0; done < DEPOSITS_PER_ROUND; done += ROWS_AT_ONCE) {
    const { rows } = await sql<Row<"deposits"> & { moves: boolean }>`
      select d.*, d.watched or exists (select from deposit_books b where b.deposit_id = d.id) as moves
      from deposits d where d.chain_id = ${network.chainId} and d.id > ${after} order by d.id limit ${ROWS_AT_ONCE}`.execute(
      ctx.db,
    )
    await halt(round, [await wrongTerms(round, rows)])
    // `scanner/check-dormant-deposits.ts` reads the balances of addresses that nobody paid or asks for.
    const moving = rows.filter(({ moves }) => moves)
    await checkAgain(
      ctx,
      rows.filter(({ moves, check_at }) => !moves && check_at === null),
    )
    const { finding, unproven } = await checkBalances(ctx, network, quorum, moving)
    const outflows = await checkOutflows(round, quorum, moving)
    await halt(round, [finding, outflows.finding])
    for (const words of [unproven, outflows.unproven]) if (words) reportUnproven(ctx, network, words)
    const last = rows.at(-1)
    if (!last || rows.length < ROWS_AT_ONCE) return null
    after = last.id
  }
  return after
}

/**
 * Makes the balances of these deposits due to be read. Earlier versions stopped reading the balances of unpaid
 * checkouts 30 days after their end.
 */
async function checkAgain(ctx: Context, deposits: readonly Row<"deposits">[]): Promise<void> {
  if (deposits.length === 0) return
  const ids = deposits.map(({ id }) => id)
  await sql`update deposits set check_at = ${ctx.now()} where id = any(${sqlArray("bigint", ids)})
    and not watched and check_at is null`.execute(ctx.db)
}

/** Compares deposits' terms with their addresses. */
async function wrongTerms({ ctx, network }: Round, rows: readonly Row<"deposits">[]): Promise<Finding | undefined> {
  const sets = await payeesOfSets(
    ctx,
    rows.flatMap(row => row.recipient_set_id ?? []),
  )
  const known = rows.filter(row => row.factory === network.depositFactory || !row.older_factory)
  return await firstOf(known, row => checkTerms(row, sets.get(row.recipient_set_id ?? -1n) ?? []))
}

/** Compares deposits' outflows with receipts. A merchant can make any number of outflows in one transaction. */
async function checkOutflows(round: Round, quorum: Quorum, deposits: readonly Row<"deposits">[]): Promise<Compared> {
  const { ctx, network } = round
  const ids = sqlArray(
    "bigint",
    deposits.map(({ id }) => id),
  )
  let after = ZERO_ID
  let unproven: string | undefined
  for (;;) {
    const { rows } = await sql<Row<"outflows"> & { deposit: Address }>`
      select o.*, d.address as deposit from outflows o join deposits d on d.id = o.deposit_id
      where d.id = any(${ids}) and o.id > ${after}::uuid order by o.id limit ${ROWS_AT_ONCE}`.execute(ctx.db)
    const compared = await checkAssertions(ctx, network, quorum, rows.map(outflowAssertion))
    if (compared.finding) return compared
    unproven ??= compared.unproven
    const last = rows.at(-1)
    if (!last || rows.length < ROWS_AT_ONCE) return unproven === undefined ? {} : { unproven }
    after = last.id
  }
}

async function passTransfers(round: Round, quorum: Quorum, after: bigint): Promise<bigint | null> {
  const { ctx, network } = round
  const rows = await ctx.db
    .selectFrom("transfers")
    .selectAll()
    .where("chain_id", "=", network.chainId)
    .where("state", "=", "final")
    .where("id", ">", after)
    .orderBy("id")
    .limit(RECEIPTS_PER_ROUND)
    .execute()
  const { finding, unproven } = await checkAssertions(ctx, network, quorum, rows.map(transferAssertion))
  await halt(round, [finding])
  if (unproven) reportUnproven(ctx, network, unproven)
  return rows.length < RECEIPTS_PER_ROUND ? null : (rows.at(-1)?.id ?? null)
}

async function passPayouts(round: Round, quorum: Quorum, after: string): Promise<string | null> {
  const { ctx, network } = round
  const ended = sql`i.id > ${after}::uuid and i.state in ('final', 'reverted')`
  const rows = await signedPayouts(ctx, network, ended, RECEIPTS_PER_ROUND)
  await halt(round, [await firstOf(rows, checkPayout)])
  // Compares only the settlement token, because any other token could halt the wallet by omitting a log.
  const settled = rows.filter(row => row.token === network.token.address)
  const { finding, unproven } = await checkAssertions(ctx, network, quorum, settled.map(payoutAssertion))
  await halt(round, [finding])
  if (unproven) reportUnproven(ctx, network, unproven)
  return rows.length < RECEIPTS_PER_ROUND ? null : (rows.at(-1)?.id ?? null)
}
