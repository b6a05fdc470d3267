/**
 * The round of a wallet: look, confirm, assign, send, replace; again while that gets on. One process has the lease, so that
 * the others need not ask the same; what is right does not rest on it, but on the wallet's row being locked. Each lane has a
 * wallet, and so rounds of its own: relays, for which buyers and agents wait, never queue behind payouts.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { hostOf } from "../chain/endpoints.ts"
import type { Network } from "../chain/networks.ts"
import { openPanel } from "../chain/quorum.ts"
import type { Signer } from "../chain/signer.ts"
import { lookAtWallet, walletDissent } from "../chain/wallet-state.ts"
import type { Context } from "../context.ts"
import type { Lane } from "../db/payout-rows.ts"
import type { Row } from "../db/schema.ts"
import { withLease } from "../jobs/claim.ts"
import { payoutAlarms } from "../metrics.ts"
import { noteDissent } from "../scanner/endpoint-troubles.ts"
import { lookSoon } from "../scanner/queries.ts"
import { noteAlarms, showQueue, showWallet, waitingIntents } from "./alarms.ts"
import { assignIntents } from "./assign-intents.ts"
import { confirmIntents, haltWallet } from "./confirm-intents.ts"
import { reserveShort } from "./make-payouts.ts"
import { tendRelays } from "./relays.ts"
import { type Pace, replaceStuck, sendAttempts, usualPace } from "./send-attempts.ts"

/** Longer than the requests of one turn can take together, in most cases. */
const LEASE_MS = 30_000
/** A round ends after so long, so that the lease is taken anew. */
const BUDGET_MS = 15_000
/** Until the next round: while something is in flight, while blocks become final, while nothing can be assigned, else. */
const BUSY_MS = 2_000
const FINALIZING_MS = 15_000
const STALLED_MS = 10_000
const IDLE_MS = 60_000
/** A payout wallet with nothing to do is observed so often. */
const HOUR_MS = 3_600_000
/** The lease stays free for so long between two full rounds while the comparison of the books waits for it, which asks four times a second. */
const YIELD_MS = 500

/** A lane's wallet: who signs for it. */
export interface LaneSigner {
  lane: Lane
  signer: Signer
}

/** The lanes that have a key; without one nothing of the lane moves. */
export const laneSigners = ({ payoutSigner, relaySigner }: Context["settings"]): LaneSigner[] => [
  ...(payoutSigner ? [{ lane: "payout" as const, signer: payoutSigner }] : []),
  ...(relaySigner ? [{ lane: "relay" as const, signer: relaySigner }] : []),
]

/** Why a wallet is halted from the first: none of its nonces is known here. */
export const USED_BEFORE =
  "what it signs for waits, and the wallet was used before this database knew it: it may be an old backup"

/** One round of a lane's wallet on one network; answers how many milliseconds the next may wait. */
export async function payoutRound(
  ctx: Context,
  network: Network,
  { lane, signer }: LaneSigner,
  pace: Pace = usualPace,
): Promise<number> {
  // Before anything that needs a node, or a wallet that is not halted: nobody waits for what can't come any more.
  if (lane === "relay") await tendRelays(ctx, network)
  const known = await ensureWallet(ctx, network, { lane, signer })
  if (!known) return BUSY_MS
  showWallet(network, known)
  if (lane === "payout") await reserveShort(ctx, network.chainId)
  const open = await openStates(ctx, network, lane)
  if (!open.due && open.assigned + open.mined === 0 && !isUnobserved(ctx, known)) return open.nextMs
  const now = ctx.now()
  let isOverBudget = false
  const job = { table: "wallets", only: known.id, leaseMs: LEASE_MS, now, nextRunAt: now } as const
  const claimed = await withLease(ctx.db, job, async wallet => {
    const until = performance.now() + BUDGET_MS
    while (!isOverBudget && (await turn(ctx, network, wallet, signer, pace)))
      isOverBudget = ctx.signal.aborted || performance.now() > until
  })
  if (!claimed) return BUSY_MS
  if (isOverBudget) {
    if (await comparisonIsDue(ctx, known)) await sleep(YIELD_MS, undefined, { signal: ctx.signal }).catch(() => {})
    return 0
  }
  const after = await openStates(ctx, network, lane)
  if (after.assigned > 0) return BUSY_MS
  // What is due and was not assigned had a reason: no gas, fees above the cap, a wallet that is halted.
  if (after.due) return STALLED_MS
  return after.mined > 0 ? Math.min(FINALIZING_MS, after.nextMs) : after.nextMs
}

/** Looks once and does what can be done by it; answers whether there may be more to do at once. */
async function turn(
  ctx: Context,
  network: Network,
  claimed: Row<"wallets">,
  signer: Signer,
  pace: Pace,
): Promise<boolean> {
  const cursor = await ctx.db
    .selectFrom("cursors")
    .select("block_number")
    .where("chain_id", "=", network.chainId)
    .executeTakeFirst()
  // Receipts are asked for after the counts, so that they can only know more.
  const [sight, panel] = await Promise.all([
    lookAtWallet(network, signer.address, ctx.signal),
    openPanel(network, cursor?.block_number ?? 0n, ctx.signal),
  ])
  // A count that is not final yet only keeps us from signing: one node's slip must not halt a wallet that works.
  await haltAhead(ctx, network, claimed, sight.agreedFinalized)
  const confirmed = await confirmIntents(ctx, network, await walletRow(ctx, claimed), panel, sight)
  if (confirmed > 0) await ctx.wakes.wake("payments")
  // A relay that is mined is a transfer to be found, one that has ended a session that waits no longer.
  const lookAfter = (changed: number) =>
    claimed.lane === "relay" && changed > 0 ? lookSoon(ctx, network.chainId) : undefined
  await lookAfter(confirmed)
  const wallet = await walletRow(ctx, claimed)
  const { proven, apparent } = panel.dissent()
  await noteDissent(ctx, network, { proven, apparent: apparent.union(walletDissent(sight, wallet.next_nonce)) })
  await noteAlarms(ctx, network, wallet, sight)
  // A halted wallet is looked at, and nothing is sent for it.
  if (wallet.status === "halted") return false
  const { assigned, putOff } = await assignIntents(ctx, network, wallet, signer, sight)
  // While nonces are given there is room, and what is stuck soon takes it up.
  if (assigned === 0) await replaceStuck(ctx, network, wallet, signer, sight, pace)
  await sendAttempts(ctx, network, wallet, sight, pace)
  await lookAfter(putOff)
  return confirmed + assigned + putOff > 0
}

const walletRow = (ctx: Context, { id }: Row<"wallets">): Promise<Row<"wallets">> =>
  ctx.db.selectFrom("wallets").selectAll().where("id", "=", id).executeTakeFirstOrThrow()

/**
 * The wallet's row, begun at the nonce that the chain has; undefined while nobody can be asked. Halted from the first where
 * the wallet was used before and payouts wait: the database may be a backup from before any of them was signed.
 */
async function ensureWallet(
  ctx: Context,
  network: Network,
  { lane, signer }: LaneSigner,
): Promise<Row<"wallets"> | undefined> {
  const row = () =>
    ctx.db
      .selectFrom("wallets")
      .selectAll()
      .where("chain_id", "=", network.chainId)
      .where("address", "=", signer.address)
      .executeTakeFirst()
  const known = await row()
  if (known && known.lane !== lane)
    throw new Error(
      `${network.name}: ${signer.address} is the ${known.lane} wallet, and can't be the ${lane} wallet too`,
    )
  if (known) return known
  const { latest, agreedLatest } = await lookAtWallet(network, signer.address, ctx.signal)
  const { finalized } = await openPanel(network, 0n, ctx.signal)
  // Too high a start is a gap for ever, so the count must not be one endpoint's alone; of three, one that lies delays nothing.
  if (latest === undefined || latest !== agreedLatest) {
    const facts = { network: network.name, lane, latest, agreedLatest, endpoints: network.endpoints.map(hostOf) }
    ctx.log.error(facts, "endpoints don't agree on the wallet's nonce: nothing is signed until they do")
    payoutAlarms.inc({ network: network.name, wallet: lane, reason: "untold" })
    return undefined
  }
  const waiting = ctx.db
    .selectFrom("intents")
    .select("id")
    .where("chain_id", "=", network.chainId)
    .where("lane", "=", lane)
    .limit(1)
  const doubtful = latest > 0n && (await waiting.executeTakeFirst()) !== undefined
  if (doubtful)
    ctx.log.fatal(
      { network: network.name, wallet: signer.address, reason: USED_BEFORE },
      `the ${lane} wallet is halted`,
    )
  await ctx.db
    .insertInto("wallets")
    .values({
      chain_id: network.chainId,
      lane,
      address: signer.address,
      next_nonce: latest,
      status: doubtful ? "halted" : "active",
      halted_reason: doubtful ? USED_BEFORE : null,
      checked_number: finalized,
      // Never observed: the first round observes it at once.
      run_at: new Date(0),
    })
    .onConflict(conflict => conflict.doNothing())
    .execute()
  return await row()
}

/**
 * The chain has mined more than we ever signed: this database is an old copy, or the key is shared. Whatever is signed from
 * here on may have been paid already. `count` is what enough endpoints agree on; undefined where they don't.
 */
async function haltAhead(
  ctx: Context,
  network: Network,
  wallet: Row<"wallets">,
  count: bigint | undefined,
): Promise<void> {
  const { next_nonce: next } = await walletRow(ctx, wallet)
  if (count === undefined || count <= next) return
  const words = `the chain has ${count} transactions of the wallet, and this database signed ${next}`
  const why = "it was restored from an old backup, or the key is used elsewhere"
  await haltWallet(ctx, network, wallet, "foreign_nonce", `${words}: ${why}`)
}

/** Looks at the wallet once at the start, so that an old backup is noticed before anything is signed. */
export async function checkWallet(ctx: Context, network: Network, by: LaneSigner): Promise<void> {
  const wallet = await ensureWallet(ctx, network, by)
  if (!wallet) return
  const { agreedLatest } = await lookAtWallet(network, by.signer.address, ctx.signal)
  await haltAhead(ctx, network, wallet, agreedLatest)
}

/**
 * Whether a payout wallet with nothing to do is observed all the same: hourly for its alarms and for nonces that others used,
 * and each round while it is halted.
 */
const isUnobserved = (ctx: Context, { lane, status, run_at: lastRound }: Row<"wallets">): boolean =>
  lane === "payout" && (status === "halted" || ctx.now().getTime() - lastRound.getTime() >= HOUR_MS)

/** Whether the comparison of the books (`reconciliation/check-books.ts`) waits for the wallet's lease. */
async function comparisonIsDue(ctx: Context, wallet: Row<"wallets">): Promise<boolean> {
  const { lane, status, check_at: dueAt } = await walletRow(ctx, wallet)
  return lane === "payout" && status === "active" && (dueAt === null || dueAt <= ctx.now())
}

interface OpenStates {
  due: boolean
  assigned: number
  mined: number
  /** Until something without a nonce is due, at most a minute. */
  nextMs: number
}

async function openStates(ctx: Context, network: Network, lane: Lane): Promise<OpenStates> {
  const rows = await waitingIntents(ctx, network, lane)
  showQueue(ctx, network, lane, rows)
  const of = (state: string) => rows.filter(row => row.state === state)
  const count = (state: string) => of(state).reduce((sum, { n }) => sum + n, 0)
  const nexts = [...of("queued"), ...of("held")].map(row => row.next.getTime() - ctx.now().getTime())
  const nextMs = Math.max(0, Math.min(IDLE_MS, ...nexts))
  return { due: nextMs === 0, assigned: count("assigned"), mined: count("mined"), nextMs }
}
