/**
 * The payout engine's round: observe the wallet, confirm, assign, replace, sign and send, and repeat this while there
 * is progress. One process holds the wallet's lease, so that others do not send the same requests. Correctness depends
 * on the lock of the wallet's row, not on the lease. Each lane has its own wallet and rounds, so relays, for which
 * buyers wait, never queue behind payouts.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { noteDissent } from "../../platform/chain/note-endpoint-troubles.ts"
import { openQuorum } from "../../platform/chain/quorum.ts"
import { readWalletState, type WalletState, walletDissent } from "../../platform/chain/wallet-state.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { isDue, withLease } from "../../platform/jobs/claim.ts"
import { assignPayouts } from "./assign-nonces.ts"
import { confirmPayouts } from "./confirm-attempts.ts"
import { finishEarlier } from "./finish-earlier-wallets.ts"
import type { Lane } from "./lane.ts"
import { ensureWallet, haltAhead, walletRow } from "./lock-wallet.ts"
import { reportAlarms, showWallet } from "./report-wallet-alarms.ts"
import { type Pace, replaceStuck, sendAttempts, usualPace } from "./send-attempts.ts"
import { showQueue, waitingPayouts } from "./show-queue.ts"
import { signAttempts } from "./sign-attempts.ts"

/** Usually longer than all requests of one turn take together. */
const LEASE_MS = 30_000
/** A round ends after this time, so that the lease is renewed. */
const ROUND_MS = 15_000
/** The wait before the next round while another process has the wallet, or while the wallet has no row yet. */
const BUSY_MS = 2_000
/** The wait before the next round while mined blocks become final. */
const FINALIZING_MS = 15_000
/** The wait before the next round while a payout is due and can't get a nonce. */
const STALLED_MS = 10_000
/** The longest wait before the next round. */
const IDLE_MS = 60_000
/** How often an idle payout wallet is observed. */
const OBSERVE_MS = 3_600_000
/** The least time between two determinations of the alarms during a series of turns. */
const ALARMS_MS = 1_000
/**
 * How long the lease stays free after a full round, so that the comparison of the books can take it. The comparison
 * tries four times a second.
 */
const YIELD_MS = 500

/** Runs one round of a lane's wallet, and returns how many milliseconds the next round may wait. */
export async function payoutRound(ctx: Context, lane: Lane, pace: Pace = usualPace): Promise<number> {
  await lane.prepare(ctx)
  const known = await ensureWallet(ctx, lane)
  if (!known) return BUSY_MS
  showWallet(lane.chain, known)
  const open = await openStates(ctx, lane)
  if (!open.due && open.assigned + open.mined === 0 && !isUnobserved(ctx, lane, known)) return open.nextMs
  const now = ctx.now()
  let isOver = false
  const job = { table: "wallets", only: known.id, leaseMs: LEASE_MS, now, nextRunAt: now } as const
  const isClaimed = await withLease(ctx.db, job, async claimed => {
    const until = performance.now() + ROUND_MS
    const round: Round = { pace, alarmsAt: Number.NEGATIVE_INFINITY, tendsEarlier: true, noted: undefined }
    try {
      while (!isOver && (await turn(ctx, lane, claimed, round)))
        isOver = ctx.signal.aborted || performance.now() > until
    } finally {
      await round.noted
    }
  })
  if (!isClaimed) return BUSY_MS
  if (isOver) {
    if (await comparisonIsDue(ctx, lane, known))
      await sleep(YIELD_MS, undefined, { signal: ctx.signal }).catch(() => {})
    return 0
  }
  const after = await openStates(ctx, lane)
  if (after.assigned > 0) return lane.inFlightMs
  // There is a reason why a due payout got no nonce: the wallet has no gas or is halted, or fees are above the cap.
  if (after.due) return STALLED_MS
  return after.mined > 0 ? Math.min(FINALIZING_MS, after.nextMs) : after.nextMs
}

/** The state that the turns of one round share. */
interface Round {
  pace: Pace
  /** When alarms were last determined, by `performance.now()`. */
  alarmsAt: number
  /**
   * Whether the next turn checks earlier wallets. The first turn checks earlier wallets, and later turns check them
   * while something changes.
   */
  tendsEarlier: boolean
  /**
   * The unfinished write of the endpoints' answers to the last broadcast. Work that needs no chain continues meanwhile.
   */
  noted: Promise<void> | undefined
}

/** Observes the wallet once and acts on the result. Returns whether to run another turn immediately. */
async function turn(ctx: Context, lane: Lane, claimed: Row<"wallets">, round: Round): Promise<boolean> {
  const { chain } = lane
  const [block] = await Promise.all([checkpoint(ctx, lane), round.noted])
  // Receipts are read after the counts, so that they are never older than the counts.
  const [state, quorum, before] = await Promise.all([
    readWalletState(chain, lane.signer.address, ctx.signal),
    openQuorum(chain, block, ctx.signal),
    walletRow(ctx, claimed),
  ])
  // Only the final count can halt the wallet. A count that is not final only stops signing, so that the error of one
  // endpoint does not halt a healthy wallet.
  await haltAhead(ctx, chain, before, state.agreedFinalized)
  const earlier = round.tendsEarlier ? await finishEarlier(ctx, lane, claimed, round.pace) : undefined
  round.tendsEarlier = (earlier?.changed ?? 0) > 0
  const own = await confirmPayouts(ctx, lane, before, quorum, state)
  const confirmed = own.changed + (earlier?.changed ?? 0)
  const [wallet] = await Promise.all([
    walletRow(ctx, claimed),
    confirmed > 0 ? lane.afterChange(ctx, [...own.looked, ...(earlier?.looked ?? [])]) : undefined,
  ])
  const { proven, apparent } = await quorum.dissent()
  await noteDissent(ctx, chain, { proven, apparent: apparent.union(walletDissent(state, wallet.next_nonce)) })
  // Alarms are not determined in each turn, because under load a turn takes some hundredths of a second.
  const isTime = performance.now() - round.alarmsAt > ALARMS_MS
  if (isTime) {
    round.alarmsAt = performance.now()
    await reportAlarms(ctx, lane, wallet, state)
  }
  // A halted wallet is observed but sends nothing.
  const isHalted = wallet.status === "halted"
  const changed = isHalted ? 0 : confirmed + (await carryOn(ctx, lane, wallet, state, round))
  if (changed === 0 && !isTime) await reportAlarms(ctx, lane, wallet, state)
  return changed > 0
}

/** Assigns nonces, replaces, signs and sends. Returns the number of payouts that the next turn must work on. */
async function carryOn(
  ctx: Context,
  lane: Lane,
  wallet: Row<"wallets">,
  state: WalletState,
  round: Round,
): Promise<number> {
  const { assigned, postponed, notSigned } = await assignPayouts(ctx, lane, wallet, state)
  // If payouts just got nonces, there is still room in flight, which a stuck nonce would soon use up.
  const replaced = assigned.length === 0 ? await replaceStuck(ctx, lane.chain, wallet, state, round.pace) : 0
  const signed = await signAttempts(ctx, lane, wallet, state, assigned)
  round.noted = (await sendAttempts(ctx, lane.chain, wallet, state, round.pace))?.noted
  if (postponed > 0) await lane.afterChange(ctx, notSigned)
  // Attempts that were found unsigned count too, because no nonce is assigned until they are signed.
  return assigned.length + Math.max(0, signed - replaced) + postponed
}

/** Returns the highest scanned block; 0 before the first scan. */
async function checkpoint(ctx: Context, { chain: { chainId } }: Lane): Promise<bigint> {
  const cursors = ctx.db.selectFrom("cursors").select("block_number").where("chain_id", "=", chainId)
  return (await cursors.executeTakeFirst())?.block_number ?? 0n
}

/**
 * Whether an idle wallet must be observed. A wallet with an alarm is observed every minute, so that the alarm ends when
 * its cause does. A payout wallet is also observed hourly, for alarms and for nonces that another process used. While
 * the wallet is halted, every round observes it.
 */
function isUnobserved(ctx: Context, lane: Lane, { status, alarms, run_at: lastRound }: Row<"wallets">): boolean {
  const isOver = (ms: number) => isDue(new Date(lastRound.getTime() + ms), ctx.now(), ms)
  if (alarms.length > 0 && isOver(IDLE_MS)) return true
  return lane.keepsBooks && (status === "halted" || isOver(OBSERVE_MS))
}

/** Whether the comparison of the books (`reconciliation/check-books.ts`) waits for the wallet's lease. */
async function comparisonIsDue(ctx: Context, lane: Lane, wallet: Row<"wallets">): Promise<boolean> {
  const { status, check_at: dueAt } = await walletRow(ctx, wallet)
  return lane.keepsBooks && status === "active" && (dueAt === null || dueAt <= ctx.now())
}

interface OpenStates {
  /** Whether a payout without a nonce is due. */
  due: boolean
  assigned: number
  mined: number
  /** The time until a payout without a nonce is due, at most a minute. */
  nextMs: number
}

async function openStates(ctx: Context, lane: Lane): Promise<OpenStates> {
  const rows = await waitingPayouts(ctx, lane)
  showQueue(ctx, lane, rows)
  const of = (state: string) => rows.filter(row => row.state === state)
  const count = (state: string) => of(state).reduce((sum, { n }) => sum + n, 0)
  const nexts = [...of("queued"), ...of("held")].map(row => row.next.getTime() - ctx.now().getTime())
  const nextMs = Math.max(0, Math.min(IDLE_MS, ...nexts))
  return { due: nextMs === 0, assigned: count("assigned"), mined: count("mined"), nextMs }
}
