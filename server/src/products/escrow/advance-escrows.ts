/**
 * The job that advances escrows. It folds each due escrow's calls, writes the resulting amounts and status, notifies
 * the merchant and makes the next call. A trigger makes an escrow due whenever one of its calls ends or changes on
 * chain.
 */
import { sql } from "kysely"
import { writeCallReceipts } from "../../ledger/receipts/write-call-receipts.ts"
import { MAX_FAILED_CALLS } from "../../ledger/relays/find-escrow-alarms.ts"
import { OTHER_WALLET } from "../../ledger/relays/find-orphaned-reserves.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { EscrowCallKind, Row } from "../../platform/db/schema.ts"
import { chainClock } from "../../platform/jobs/chain-clock.ts"
import { dueNow } from "../../platform/jobs/due-now.ts"
import { checkoutChanges, countPayment } from "../../platform/metrics.ts"
import { ofKind, standingOf } from "./fold-escrow.ts"
import { type CurrentEscrow, lockEscrow, standingOfEscrow } from "./load-escrow.ts"
import { insertCall } from "./make-calls.ts"
import { notifyEscrow } from "./notify-escrow.ts"
import { emptiedOf } from "./read-reclaim.ts"
import { remadeUntil, remakeRefund, remakesRefunds } from "./remake-refund.ts"
import { settleRefunds } from "./settle-refunds.ts"
import { wordsOf } from "./words.ts"

/** The most escrows per round. The rest follow immediately. */
const ESCROWS_PER_ROUND = 200
/** The wait until the next check while a mined call is not deep enough. */
const DEPTH_MS = 1_000
/** The wait until the next check while only the chain can show what happens to the reserved money. */
const RECLAIM_MS = 60_000
const MAX_RECLAIM_MS = 3_600_000
const RECLAIM_PART = 24
/**
 * For how many seconds, by the database's clock, an escrow is left to the processes that hold its relay wallet's key.
 * Without this time, a process with a fast clock always came first and postponed the escrow. With clocks 300 ms
 * apart, no call was made for days (measured).
 */
const OTHERS_S = 5
/** How long to wait while another process holds the key of the relay wallet that must make a call. */
const ELSEWHERE_MS = 1_000
const AFTER_FAILURE_MS = 30_000
/** The longest sleep, and so the longest delay that a lost wake-up can cause. */
const MAX_SLEEP_MS = 5_000
/**
 * The wait before a retry of an automatic capture or a void that failed {@link MAX_FAILED_CALLS} times (alarm
 * `escrow_failed`).
 */
const AFTER_FAILED_MS = 3_600_000

/**
 * `over`: escrows whose authorization has ended. For them, the chain shows whether the payer took the money back.
 * `others` need no call to the chain. Each has its own loop, so that an endpoint that hangs does not delay other
 * networks' payments.
 */
type WhichEscrows = "over" | "others"

/** A due escrow, and the time with which its deadlines are compared. */
type Due = Row<"escrows"> & { clock: Date }

/** Advances all due escrows, or only those of the given kind. Returns the milliseconds until the next round. */
export async function advanceEscrows(ctx: Context, which?: WhichEscrows): Promise<number> {
  const isOver = sql<boolean>`(auth_id is not null and authorized > captured + voided + reclaimed
    and authorization_expiry <= ${ctx.now()})`
  const asked = which === undefined ? sql<boolean>`true` : which === "over" ? isOver : sql<boolean>`not ${isOver}`
  const clock = chainClock(ctx, sql.ref("escrows.chain_id"))
  const isReady = sql<boolean>`(run_at <= ${clock}
    and (operator is not distinct from ${ctx.settings.relayWallet ?? null} or run_at <= ${dueNow(ctx.now())} - make_interval(secs => ${OTHERS_S})))`
  const due: Due[] = await ctx.db
    .selectFrom("escrows")
    .selectAll()
    .select(clock.as("clock"))
    .where("run_at", "<=", ctx.now())
    .where(isReady)
    .where(asked)
    .orderBy("run_at")
    .orderBy("session_id")
    .limit(ESCROWS_PER_ROUND)
    .execute()
  let isCalling = false
  const emptied = which === "others" ? new Set<string>() : await takenOf(ctx, due)
  for (const escrow of due) isCalling = (await tryAdvancing(ctx, escrow, emptied.has(escrow.session_id))) || isCalling
  if (isCalling) await ctx.wakes.wake("payouts")
  if (due.length === ESCROWS_PER_ROUND) return 0
  const next = await ctx.db
    .selectFrom("escrows")
    .select("run_at")
    .where("run_at", "is not", null)
    .where(sql<boolean>`(run_at > ${ctx.now()} or ${isReady})`)
    .where(asked)
    .orderBy("run_at")
    .limit(1)
    .executeTakeFirst()
  const waitMs = next?.run_at ? next.run_at.getTime() - ctx.now().getTime() : MAX_SLEEP_MS
  return Math.max(0, Math.min(MAX_SLEEP_MS, waitMs))
}

const takenOf = (ctx: Context, due: readonly Row<"escrows">[]): Promise<Set<string>> =>
  emptiedOf(ctx, due).catch(error => {
    ctx.log.error({ err: error }, "payers' withdrawals could not be read; reading will be retried")
    return new Set<string>()
  })

/** Advances one escrow; returns whether it made a call. A failure is logged and retried later. */
async function tryAdvancing(each: Context, { session_id: sessionId, clock }: Due, emptied: boolean): Promise<boolean> {
  const ctx: Context = { ...each, now: () => clock }
  try {
    const { isCalling, isNews } = await inTransaction(ctx, ctx => advance(ctx, sessionId, emptied))
    if (isNews) await ctx.wakes.wake("payments", [sessionId])
    return isCalling
  } catch (error) {
    ctx.log.error({ err: error, sessionId }, "an escrow could not be advanced and will be tried again")
    await noteFailure(ctx, sessionId)
    return await releaseAnyway(ctx, sessionId)
  }
}

/**
 * Counts a failure for the alarm `escrow_failed`: while an escrow can't be advanced, its payer's money stays locked.
 */
async function noteFailure(ctx: Context, sessionId: string): Promise<void> {
  const again = new Date(ctx.now().getTime() + AFTER_FAILURE_MS)
  await ctx.db
    .updateTable("escrows")
    .set(eb => ({ run_at: again, failed_rounds: eb("failed_rounds", "+", 1) }))
    .where("session_id", "=", sessionId)
    .execute()
}

/**
 * Makes a void that is due even if the rest fails, because the payer's money must not wait for a notification or a
 * row. Returns whether it made one.
 */
async function releaseAnyway(ctx: Context, sessionId: string): Promise<boolean> {
  try {
    return await inTransaction(ctx, async ctx => {
      const locked = await lockEscrow(ctx, sessionId)
      if (!locked || ctx.now() < locked.escrow.void_at) return false
      return await makeNext(ctx, await standingOfEscrow(ctx, locked))
    })
  } catch (error) {
    ctx.log.error(
      { err: error, sessionId },
      "a payer's reserved money could not be released; the release will be retried",
    )
    return false
  }
}

/**
 * Advances a locked escrow. `emptied`: whether the escrow holds none of its money in a final block after its
 * authorization ended.
 */
async function advance(
  ctx: TxContext,
  sessionId: string,
  emptied: boolean,
): Promise<{ isCalling: boolean; isNews: boolean }> {
  const locked = await lockEscrow(ctx, sessionId)
  const due = locked?.escrow.run_at
  if (!locked || !due || due > ctx.now()) return { isCalling: false, isNews: false }
  let standing = await standingOfEscrow(ctx, locked)
  let isCalling = false
  while (await remakeRefund(ctx, standing)) {
    isCalling = true
    standing = await standingOfEscrow(ctx, locked)
  }
  if (emptied && standing.folded.capturable > 0n && !isSigned(standing)) {
    const { session, escrow, folded } = standing
    const taken = { ...escrow, reclaimed: folded.reclaimed + folded.capturable }
    ctx.log.warn({ sessionId, amount: `${folded.capturable}` }, "a payer withdrew reserved money")
    standing = await standingOfEscrow(ctx, { session, escrow: taken })
  }
  isCalling = (await makeNext(ctx, standing)) || isCalling
  return { isCalling, isNews: await writeStanding(ctx, locked.escrow, standing) }
}

/** Whether a capture or a void is signed and has not ended. Such a call may be what emptied the escrow. */
const isSigned = ({ calls }: CurrentEscrow): boolean =>
  ofKind(calls, "capture", "void").some(call => standingOf(call) === "open" && call.nonce !== null)

/** Makes the call that is due without anyone's request; returns whether it did. */
async function makeNext(ctx: TxContext, standing: CurrentEscrow): Promise<boolean> {
  const { escrow, folded } = standing
  const kind = nextKind(ctx, standing)
  if (kind === undefined || folded.open.capture + folded.open.void > 0) return false
  if (escrow.operator !== ctx.settings.relayWallet || ctx.now() < retryAt(standing, kind)) return false
  await insertCall(ctx, standing, { kind, amount: kind === "void" ? folded.capturable : folded.freeToCapture })
  return true
}

/** Returns the kind of call to make without anyone's request; undefined if none is needed. */
function nextKind(ctx: TxContext, { session, escrow, calls, folded }: CurrentEscrow): "capture" | "void" | undefined {
  if (folded.capturable === 0n) return undefined
  if (ctx.now() >= escrow.void_at) return "void"
  if (session.capture !== "automatic" || folded.captured > 0n) return undefined
  // A void that failed on chain is retried, because its merchant gave up the sale. The last call is the one with the
  // highest nonce: two processes with different clocks may have written times out of order.
  const signed = ofKind(calls, "capture", "void").filter(({ nonce }) => nonce !== null)
  const last = signed.reduce<CurrentEscrow["calls"][number] | undefined>(
    (a, b) => ((a?.nonce ?? -1n) > (b.nonce ?? -1n) ? a : b),
    undefined,
  )
  return last?.kind === "void" ? "void" : "capture"
}

/** Returns when a call of this kind may be retried; the epoch if it may be retried immediately. */
function retryAt({ calls }: CurrentEscrow, kind: "capture" | "void"): Date {
  const failed = ofKind(calls, kind).filter(({ state }) => state === "reverted")
  const last = failed.at(-1)
  return failed.length >= MAX_FAILED_CALLS && last ? new Date(last.updated_at.getTime() + AFTER_FAILED_MS) : new Date(0)
}

/** Writes the state of an escrow and its session, and notifies the merchant; returns whether the session changed. */
async function writeStanding(ctx: TxContext, before: Row<"escrows">, standing: CurrentEscrow): Promise<boolean> {
  const { session, escrow, folded } = standing
  const now = ctx.now()
  const isHeld = folded.authorized > 0n
  // An open call of an earlier payer blocks other payers, because it would be taken for theirs.
  const isFree = !isHeld && Object.values(folded.open).every(n => n === 0)
  const { authorized, captured, voided, reclaimed, refunded } = folded
  const after = {
    escrow: {
      ...escrow,
      authorized,
      captured,
      voided,
      reclaimed,
      refunded,
      // Another payer may sign if the last payer's signature reserved nothing.
      ...(isFree ? { payer: null, auth_id: null } : {}),
      authorized_at: escrow.authorized_at ?? (isHeld ? now : null),
      voided_at: voided + reclaimed > 0n ? (escrow.voided_at ?? now) : null,
      run_at: nextLook(ctx, standing),
      failed_rounds: 0,
      updated_at: now,
    },
    session: { ...session, ...rowOf(ctx, standing) },
  }
  await writeEscrow(ctx, after.escrow)
  const { status, received, message, payer, tx_hash, confirmed_at } = after.session
  const isNews = status !== session.status || received !== session.received || message !== session.message
  if (isNews || tx_hash !== session.tx_hash)
    await ctx.db
      .updateTable("checkout_sessions")
      .set({ status, received, message, payer, tx_hash, confirmed_at, updated_at: now })
      .where("id", "=", session.id)
      .execute()
  if (isHeld && escrow.authorized_at === null) await countUse(ctx, session.link_id)
  await notifyEscrow(ctx, { before: { session, escrow: before }, after })
  // Before the refunds of a capture that now starts to count, the merchant is notified of the capture.
  const counting = new Set(standing.calls.filter(call => standingOf(call) === "counts").map(({ id }) => id))
  const remakes = remakesRefunds(ctx, standing)
  await writeCallReceipts(ctx, escrow, isHeld ? counting : new Set())
  if (await settleRefunds(ctx, { session: after.session, captured, counting, remakes }))
    await lookBy(ctx, escrow, remadeUntil(escrow))
  count(ctx, session, { before, after: after.escrow })
  if (status !== session.status) {
    ctx.log.info({ sessionId: session.id, from: session.status, to: status }, "session")
    const { name: network } = networkOf(ctx.chain, session.chain_id)
    ctx.onCommit(() => checkoutChanges.inc({ network, status }))
  }
  return isNews
}

/** Makes an escrow due by a time, or in a minute if another process has to make its calls. */
async function lookBy(ctx: TxContext, { session_id: sessionId, operator }: Row<"escrows">, by: Date): Promise<void> {
  const at = operator === ctx.settings.relayWallet ? by : new Date(ctx.now().getTime() + RECLAIM_MS)
  await ctx.db
    .updateTable("escrows")
    .set({ run_at: sql<Date>`least(run_at, ${at})` })
    .where("session_id", "=", sessionId)
    .execute()
}

/** Adds newly captured and refunded amounts to the metrics. Amounts that a reorg removed are not subtracted. */
function count(
  ctx: TxContext,
  { id, chain_id }: Row<"checkout_sessions">,
  { before, after }: { before: Row<"escrows">; after: Row<"escrows"> },
): void {
  const network = networkOf(ctx.chain, chain_id)
  for (const state of ["captured", "refunded"] as const) {
    const amount = after[state] - before[state]
    if (amount > 0n) ctx.onCommit(() => countPayment(network, id, state, { token: network.token.address, amount }))
  }
}

async function writeEscrow(ctx: TxContext, escrow: Row<"escrows">): Promise<void> {
  const { authorized, captured, voided, reclaimed, refunded, payer, auth_id } = escrow
  const { authorized_at, voided_at, run_at, failed_rounds, updated_at } = escrow
  await ctx.db
    .updateTable("escrows")
    .set({
      authorized,
      captured,
      voided,
      reclaimed,
      refunded,
      payer,
      auth_id,
      authorized_at,
      voided_at,
      run_at,
      failed_rounds,
      updated_at,
    })
    .where("session_id", "=", escrow.session_id)
    .execute()
}

/** Returns the values of a session's columns that follow from its escrow. */
function rowOf(ctx: TxContext, { session, escrow, calls, folded }: CurrentEscrow) {
  const { token } = networkOf(ctx.chain, session.chain_id)
  const hashOf = (kind: EscrowCallKind) =>
    ofKind(calls, kind).find(call => standingOf(call) === "counts")?.tx_hash ?? null
  const isHeld = folded.authorized > 0n
  return {
    status: folded.status,
    received: folded.captured,
    message: wordsOf(folded, {
      amount: session.amount,
      token,
      failure: failureOf(calls),
      now: ctx.now(),
      expiresAt: session.expires_at,
      voidAt: escrow.void_at,
      reclaimAt: escrow.authorization_expiry,
    }),
    payer: isHeld ? escrow.payer : null,
    tx_hash: isHeld ? (folded.captured > 0n ? hashOf("capture") : hashOf("reserve")) : null,
    confirmed_at: folded.captured > 0n ? (session.confirmed_at ?? ctx.now()) : null,
  }
}

/** Returns why the last reservation failed, in a sentence for the payer. */
function failureOf(calls: CurrentEscrow["calls"]): string | null {
  const last = ofKind(calls, "reserve").at(-1)
  if (last?.state === "cancelled" && last.held_detail === OTHER_WALLET) return OTHER_WALLET
  if (last?.state === "cancelled") return `${last.held_detail ?? "It was not executed."} Nothing was paid: sign again.`
  if (last?.state === "reverted") return "The signed payment failed on chain. Nothing was paid: sign again."
  return null
}

/**
 * Returns when an escrow is due again if none of its calls changes earlier. A call that was just made does not
 * replace this time: while a void is held, the payer may reclaim the money.
 */
function nextLook(ctx: TxContext, standing: CurrentEscrow): Date | null {
  const { session, escrow, calls, folded } = standing
  const now = ctx.now().getTime()
  if (calls.some(call => call.state === "mined" && call.succeeded && !call.deep)) return new Date(now + DEPTH_MS)
  if (folded.status === "pending") return session.expires_at
  if (folded.capturable === 0n) return null
  const expiry = escrow.authorization_expiry.getTime()
  const isReleasing = now >= escrow.void_at.getTime()
  const look = isReleasing ? Math.max(now + reclaimMs(now - expiry), expiry) : escrow.void_at.getTime()
  const kind = folded.open.capture + folded.open.void > 0 ? undefined : nextKind(ctx, standing)
  if (kind && escrow.operator !== ctx.settings.relayWallet) return new Date(now + elsewhereMs(ctx, escrow, kind))
  const retry = kind ? retryAt(standing, kind).getTime() : 0
  return new Date(retry > now ? Math.min(look, retry) : look)
}

/**
 * Returns how long to leave a call to the process that can make it, which may start soon or never. This time grows
 * from a second to an hour once the call has been due for a day.
 */
function elsewhereMs(ctx: TxContext, { void_at, authorized_at }: Row<"escrows">, kind: "capture" | "void"): number {
  const since = kind === "void" ? void_at : (authorized_at ?? ctx.now())
  return between(ELSEWHERE_MS, ctx.now().getTime() - since.getTime())
}

/** Returns a fixed fraction of the time since something was due, within limits, in milliseconds. */
const between = (least: number, overMs: number): number =>
  Math.max(least, Math.min(MAX_RECLAIM_MS, Math.floor(overMs / RECLAIM_PART)))

/**
 * Returns the wait before the next check whether the payer reclaimed the money, `overMs` after that became possible.
 * The wait grows from a minute to an hour over a day.
 */
const reclaimMs = (overMs: number): number => between(RECLAIM_MS, overMs)

/**
 * Counts a use of the session's link. Only links without a limit can have an escrow. If a limit is set later, uses
 * are counted up to that limit, because the money is reserved whatever the link says.
 */
async function countUse(ctx: TxContext, linkId: string | null): Promise<void> {
  if (linkId === null) return
  await ctx.db
    .updateTable("payment_links")
    .set({ uses: sql<number>`least(uses + 1, coalesce(max_uses, uses + 1))` })
    .where("id", "=", linkId)
    .execute()
}
