/**
 * Compares the logs of new finalized blocks with the rows, hourly, for each payout wallet. The wallets halt for a
 * transfer without a payout, a payout paid twice, a final payout that never left, or a row contradicting its receipt.
 *
 * The comparison holds the wallet's lease, as a payout round does, so the payout engine signs nothing between the
 * comparison and the halt. The lease may expire while a slow endpoint responds, but the halt stays safe. The halt
 * updates the wallet's row, and code that assigns nonces locks that row until the commit and reads the status under the
 * lock. So a nonce is assigned before the halt or not at all, and a halted wallet broadcasts nothing.
 *
 * A comparison takes turns with the payout rounds. The progress of a comparison is stored, so the next turn, in any
 * process, continues from there.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { openQuorum, type Quorum } from "../../platform/chain/quorum.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { isDue, withLease } from "../../platform/jobs/claim.ts"
import { bringBack } from "../deposits/put-away.ts"
import { followGivenBack } from "../settlement/end-given-back.ts"
import type { SellingContext } from "../settlement/sellable.ts"
import { compareLogs } from "./compare-logs.ts"
import { type Blocks, depositsNamed, movingDeposits } from "./list-compared-deposits.ts"
import { givenBackFrom } from "./read-given-back.ts"
import { type Compared, haltPayoutWallets, reportUnproven } from "./report.ts"

const HOUR_MS = 3_600_000
/** The longest sleep, so that a new or resumed wallet is compared within a minute. */
const IDLE_MS = 60_000
/** The wait after an unfinished comparison, so that an endpoint does not immediately get the same requests again. */
const RETRY_MS = 60_000
/** The wait while a payout round holds the lease. After each round, the lease is free for longer than this. */
const LEASE_TAKEN_MS = 250
/** The same as the lease of a payout round, so that payouts wait no longer than that if this process dies. */
const LEASE_MS = 30_000
/** How long a turn takes, not counting the part that is running when the time is up. Payouts wait meanwhile. */
const TURN_MS = 15_000
/** The wait between two turns of a comparison, in which payouts take their turn. */
const BETWEEN_TURNS_MS = 1_000
/** The deposits of five log requests, each for a thousand addresses. */
const DEPOSITS_AT_ONCE = 5_000
/** The clocks of this process, other processes and the chain differ by less than this. */
const MAX_SKEW_MS = 600_000

/**
 * Compares for a turn of `turnMs` milliseconds if a payout wallet's hour has passed. Returns how many milliseconds the
 * next call may wait.
 */
export async function checkBooks(
  ctx: SellingContext,
  network: Network,
  address: Address,
  turnMs = TURN_MS,
): Promise<number> {
  const wallet = await ctx.db
    .selectFrom("wallets")
    .selectAll()
    .where("chain_id", "=", network.chainId)
    .where("address", "=", address)
    .executeTakeFirst()
  const waitMs = wallet ? msUntilDue(ctx, wallet) : IDLE_MS
  if (!wallet || waitMs > 0) return waitMs
  const now = ctx.now()
  // `run_at` is when a payout round last ran, so the comparison keeps its value.
  const job = { table: "wallets", only: wallet.id, leaseMs: LEASE_MS, now, nextRunAt: wallet.run_at } as const
  let nextMs = LEASE_TAKEN_MS
  await withLease(ctx.db, job, async claimed => {
    // Another process may have compared blocks or halted the wallet since the row was read.
    nextMs = msUntilDue(ctx, claimed) || (await compareNewBlocks(ctx, network, claimed, turnMs))
  })
  return Math.min(IDLE_MS, nextMs)
}

/**
 * Returns 0 if the wallet's comparison is due, and otherwise how many milliseconds to wait. A halted wallet is not
 * compared until a person resumes it.
 */
function msUntilDue(ctx: Context, { status, check_at: dueAt }: Row<"wallets">): number {
  if (status === "halted") return IDLE_MS
  if (dueAt === null || isDue(dueAt, ctx.now(), HOUR_MS)) return 0
  return Math.min(IDLE_MS, dueAt.getTime() - ctx.now().getTime())
}

type Wallet = Row<"wallets">

/**
 * Compares for one turn, from where the last turn stopped. Returns how many milliseconds the next comparison or turn
 * may wait.
 */
async function compareNewBlocks(
  ctx: SellingContext,
  network: Network,
  wallet: Wallet,
  turnMs: number,
): Promise<number> {
  const startedAt = ctx.now()
  const until = performance.now() + turnMs
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("block_number")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  const quorum = await openQuorum(network, cursor?.block_number ?? 0n, ctx.signal)
  // The first comparison covers one block: the current one, or the block where this comparison already started.
  const first = wallet.checked_to ?? quorum.finalized
  let from = wallet.checked_number === null ? first : wallet.checked_number + 1n
  let begun = wallet
  let nextMs = HOUR_MS
  while (from <= quorum.finalized) {
    const { finding, unproven, comparedTo, isLost } = await compareRange(ctx, network, quorum, begun, from, until)
    if (isLost) return RETRY_MS
    if (finding) {
      await haltPayoutWallets(ctx, network, finding.words)
      return IDLE_MS
    }
    if (unproven !== undefined) {
      reportUnproven(ctx, network, unproven, { from: `${from}` })
      nextMs = RETRY_MS
      break
    }
    if (comparedTo !== undefined) {
      from = comparedTo + 1n
      begun = { ...begun, checked_number: comparedTo, checked_to: null, checked_position: null }
    }
    if (from <= quorum.finalized && performance.now() > until) {
      nextMs = BETWEEN_TURNS_MS
      break
    }
  }
  // A turn that stops early has not compared the later blocks yet.
  if (nextMs !== BETWEEN_TURNS_MS) await followGivenBack(ctx, network)
  const dueInMs = nextMs === BETWEEN_TURNS_MS ? 0 : nextMs
  await note(ctx, wallet, { check_at: new Date(startedAt.getTime() + dueInMs) })
  return nextMs
}

/** The claim does not fence this write: compared blocks stay compared even if the lease has expired. */
const note = (ctx: Context, { id }: Wallet, change: Partial<Wallet>) =>
  ctx.db.updateTable("wallets").set(change).where("id", "=", id).execute()

/**
 * Stores the progress within a range, if the wallet is still at the start of the range and, unless the range `begins`,
 * within it. Returns whether this is so. A worker whose lease has expired may return while another worker compares
 * different blocks. The first worker's position would skip deposits there.
 */
async function noteProgress(
  ctx: Context,
  { id, checked_number }: Wallet,
  to: bigint,
  change: Partial<Wallet>,
  begins = false,
): Promise<boolean> {
  const { numAffectedRows } = await sql`update wallets set ${sql.join(
    Object.entries(change).map(([column, value]) => sql`${sql.ref(column)} = ${value}`),
  )} where id = ${id} and checked_number is not distinct from ${checked_number}
      and (${begins} or checked_to = ${to})`.execute(ctx.db)
  return numAffectedRows === 1n
}

/**
 * Compares as many blocks from `from` as fit in one comparison, part by part until `until`. `comparedTo` is the last of
 * these blocks once all parts are compared. `isLost` means that another worker compares other blocks.
 */
async function compareRange(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  wallet: Wallet,
  from: bigint,
  until: number,
): Promise<Compared & { comparedTo?: bigint; isLost?: boolean }> {
  let { checked_to: to, checked_position: after } = wallet
  if (to === null || after === null) {
    const { end, ...compared } = await compareNamed(ctx, network, quorum, from)
    if (end === undefined) return compared
    to = end
    after = 0n
    if (!(await noteProgress(ctx, wallet, to, { checked_to: to, checked_position: after }, true)))
      return { isLost: true }
  }
  await quorum.learn([from], [])
  const begunAt = quorum.blockAt(from)?.block.time
  if (!begunAt) return { unproven: `the books can't be compared: endpoints do not agree on block ${from}` }
  const range = { from, to, since: new Date(begunAt.getTime() - MAX_SKEW_MS) }
  for (;;) {
    const deposits = await movingDeposits(ctx, network, range, after, DEPOSITS_AT_ONCE)
    const compared = deposits.length === 0 ? {} : await compareLogs(ctx, network, quorum, deposits, range)
    if (compared.finding ?? compared.unproven) return compared
    const last = deposits.at(-1)
    if (!last || deposits.length < DEPOSITS_AT_ONCE) {
      const change = { checked_number: to, checked_to: null, checked_position: null }
      return (await noteProgress(ctx, wallet, to, change)) ? { comparedTo: to } : { isLost: true }
    }
    after = last.id
    if (!(await noteProgress(ctx, wallet, to, { checked_position: after }))) return { isLost: true }
    if (performance.now() > until) return {}
  }
}

/**
 * Decides how many blocks from `from` to compare together, and compares the deposits that factories name in these
 * blocks. `end` is the last of these blocks.
 */
async function compareNamed(
  ctx: SellingContext,
  network: Network,
  quorum: Quorum,
  from: bigint,
): Promise<Compared & { end?: bigint }> {
  const read = await givenBackFrom(ctx, network, from, quorum.finalized)
  if (!read)
    return { unproven: "the books can't be compared: endpoints do not answer, or do not agree on what was given back" }
  const range: Blocks = { from, to: read.to }
  const named = [...new Set(read.given.map(({ deposit }) => deposit))]
  await bringBack(ctx, { addresses: named })
  const deposits = await depositsNamed(ctx, network, named)
  const compared = deposits.length === 0 ? {} : await compareLogs(ctx, network, quorum, deposits, range)
  return (compared.finding ?? compared.unproven) ? compared : { end: range.to }
}
