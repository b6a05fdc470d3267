/**
 * Settling of checkout sessions: in one database transaction per session, what arrived at its address is counted, claimed by
 * the payment that it makes or by one that waits for the merchant, and the session's status follows.
 */
import { sql } from "kysely"
import type { Address } from "../chain/hex.ts"
import { type Network, networkOf } from "../chain/networks.ts"
import { type Screening, screen } from "../chain/sanctions.ts"
import {
  type Arrival,
  type Facts,
  type Folded,
  foldSession,
  messageOf,
  replayCaution,
} from "../checkouts/session-rules.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { newId } from "../ids.ts"
import { paymentChanges } from "../metrics.ts"
import { cancelPayouts, makePayouts } from "../payouts/make-payouts.ts"
import { stopReturns } from "../payouts/make-returns.ts"
import { relayStanding } from "../payouts/relays.ts"
import { lookSoon } from "../scanner/queries.ts"
import { sanctioned } from "../scanner/submission-faults.ts"
import { claim, writeOpen } from "./exceptions.ts"
import { tellCheckout, toldOf } from "./notify-checkout.ts"
import { tellPaid } from "./notify-paid.ts"
import {
  dueSessions,
  endBatch,
  holdBatch,
  readBatch,
  type SessionTransfer,
  screenedTogether,
  sendersOf,
} from "./session-batch.ts"
import { believed } from "./single-source.ts"

/** Settling stops after so long, so that the round's lease is never outlived. */
const BUDGET_MS = 15_000
/** What can't be decided now is looked at again after so long. */
const AGAIN_MS = 30_000
/** Nodes put logs into their index late: the scan has to be so far beyond the expiry, by the time of its last block. */
const LOOK_SLACK_MS = 30_000
/** An address that is looked at once more before its session expires stays in the scan for so long. */
const LAST_LOOK_MS = 600_000

/** Settles the sessions that are due on the network; answers how many. One that fails does not keep the others. */
export async function settleSessions(ctx: Context, network: Network): Promise<number> {
  const due = await dueSessions(ctx, network)
  if (due.length === 0) return 0
  const until = performance.now() + BUDGET_MS
  const isOver = () => ctx.signal.aborted || performance.now() > until
  let isMore = false
  // Each part is screened just before it is settled: the many senders of a flood keep nobody else waiting.
  for (const part of screenedTogether(due)) {
    const screened = isOver() ? undefined : await screen(ctx, sendersOf(part), "checkout")
    for (const { id } of part) {
      if (screened === undefined || isOver()) isMore = true
      else isMore = (await trySettling(ctx, id, screened)) || isMore
    }
  }
  // The next part of a flood comes in a round of its own, at once: whoever has paid meanwhile is before it again.
  if (isMore) await lookSoon(ctx, network.chainId)
  await ctx.wakes.wake("payments")
  await ctx.wakes.wake("payouts")
  ctx.wakes.wakeSoon("deliveries")
  return due.length
}

/** Settles one session; answers whether more of it could be settled at once. A failure is logged, and the session stays due. */
async function trySettling(ctx: Context, id: string, screened: Map<Address, Screening>): Promise<boolean> {
  try {
    return (await inTransaction(ctx, ctx => settleSession(ctx, id, screened))).waiting > 0
  } catch (error) {
    ctx.log.error({ err: error, sessionId: id }, "settling a session failed and will be tried again")
    return false
  }
}

/**
 * Settles one session; call it inside a transaction. Senders that are not among `screened` can't be counted yet. Answers how
 * many transfers are left that could be settled at once, in a transaction of their own.
 */
export async function settleSession(
  ctx: TxContext,
  id: string,
  screened: Map<Address, Screening>,
): Promise<{ waiting: number }> {
  const session = await lockSession(ctx, id)
  const deposit = await ctx.db.selectFrom("deposits").selectAll().where("session_id", "=", id).executeTakeFirstOrThrow()
  const network = networkOf(ctx.chain, session.chain_id)
  const batch = await holdBatch(ctx, deposit, network.token.address)
  await followDecisions(ctx, session)
  const transfers = await readBatch(ctx, batch)
  const payments = await ctx.db
    .selectFrom("payments")
    .selectAll()
    .where("session_id", "=", id)
    .orderBy("created_at")
    .orderBy("id")
    .execute()
  const main = payments.find(payment => payment.status === "granted" && !payment.beside)
  const accepted = main?.accepted_at ? main : undefined
  // What the merchant has decided about is counted no more, but for the session's own payment.
  const undecided = transfers.filter(
    row =>
      row.state !== "gone" &&
      row.payment_status !== "returned" &&
      !(row.payment_status === "granted" && (row.beside || row.token !== network.token.address)),
  )
  const standing = undecided.filter(row => row.token === network.token.address)
  const others = undecided.filter(row => row.token !== network.token.address)
  const counted = (row: SessionTransfer) => row.payment_status === "granted"
  const screeningOf = (row: SessionTransfer) => (counted(row) ? "clear" : (screened.get(row.from_address) ?? "unknown"))
  const stands = (row: SessionTransfer) => ["confirmed", "final"].includes(row.state) && row.suspect_at === null
  const isBelieved = believed(
    ctx,
    network,
    transfers.filter(row => stands(row) && row.token === network.token.address),
  )
  const sure = (row: SessionTransfer) => stands(row) && isBelieved(row)
  const clean = standing.filter(row => screeningOf(row) !== "listed")
  const unscreened = [...clean, ...others].some(row => screeningOf(row) === "unknown" && row.state !== "seen")
  // Whatever becomes of money that is here, what brought it is over: a hash, a relay.
  const here = transfers.filter(row => row.state !== "gone" && row.token === network.token.address)
  const arrived = new Set(here.map(row => row.tx_hash))
  const said = await submissionsOf(ctx, session, arrived)
  const relay = await relayStanding(ctx, deposit.id, arrived)
  // What pays already comes first and was in time, wherever in the chain it moves: a payment keeps its transfers.
  const inOrder = [...clean.filter(counted), ...clean.filter(row => !counted(row))]
  const arrivals = inOrder.map(
    (row): Arrival => ({
      id: row.id,
      value: row.value,
      // A relay is only signed in time. How soon it is mined is not the payer's to answer for.
      minedAt:
        (counted(row) || relay.hashes.has(row.tx_hash)) && row.block_time > session.expires_at
          ? session.expires_at
          : row.block_time,
      // What counts already goes on doing so while it moves to another block, or is only suspected to be gone.
      confirmed: counted(row) || (sure(row) && screeningOf(row) !== "unknown"),
      accepted: accepted !== undefined && counted(row),
    }),
  )
  const facts: Facts = {
    amount: session.amount,
    expiresAt: session.expires_at,
    usedUp: false,
    submitted: said.open || relay.open,
    refused: said.refused,
    ended:
      ctx.now() > session.expires_at && (session.status === "failed" || session.status === "expired")
        ? session.status
        : null,
    wrongAsset: others.length > 0,
    // What has expired was looked at to its end; that its address has left the scan since changes nothing.
    lookedPastExpiry:
      session.status === "expired" || (batch.waiting === 0 && (await lookedPast(ctx, session, deposit))),
    accepted: accepted
      ? { exception: accepted.exception === "sanctioned" ? null : (accepted.exception ?? null) }
      : null,
    beside: sumOf(transfers.filter(row => row.beside && row.state !== "gone" && row.token === network.token.address)),
  }
  let folded = foldSession(facts, arrivals, ctx.now())
  if (folded.status === "confirmed" && !payments.some(everPaid) && !(await takeUse(ctx, session.link_id)))
    folded = foldSession({ ...facts, usedUp: true }, arrivals, ctx.now())

  const paidId = accepted?.id ?? (await writePaid(ctx, session, folded, clean, payments))
  const rest = new Set(folded.rest?.arrivals.map(arrival => arrival.id))
  const listed = undecided.filter(row => sure(row) && screeningOf(row) === "listed")
  const wrong = others.filter(row => sure(row) && screeningOf(row) === "clear")
  await writeOpen(
    ctx,
    { merchant_id: session.merchant_id, chain_id: session.chain_id, paywall_id: null, session_id: id },
    undefined,
    undecided.filter(row => screeningOf(row) !== "unknown"),
    [
      { exception: folded.rest?.exception ?? "overpaid", transfers: clean.filter(row => rest.has(row.id)) },
      { exception: "wrong_asset", transfers: wrong },
      { exception: "sanctioned", transfers: listed },
    ],
    () => session.recipient_set_id,
  )
  await acceptSubmissions(ctx, id, folded, clean)
  const last = folded.paid.at(-1)
  const lastRow = accepted ? { ...accepted, from_address: accepted.payer } : clean.find(row => row.id === last?.id)
  const barred = listed.length > 0 && folded.received === 0n
  // A link used up by others stays so past the expiry: looked at for ever, such sessions would keep the others waiting.
  const isOver = folded.status === "failed" && facts.lookedPastExpiry
  const ended = folded.status === "confirmed" || folded.status === "expired" || isOver
  const confirmedAt = folded.status === "confirmed" ? (session.confirmed_at ?? ctx.now()) : null
  const again = new Date(ctx.now().getTime() + AGAIN_MS)
  const standingWords = messageOf(
    { ...folded, amount: session.amount },
    network.token,
    barred ? sanctioned.message : folded.status === "verifying" ? null : relay.failure,
    payments.some(payment => payment.status === "returned"),
  )
  const { replayableUntil: until } = relay
  const message =
    until === undefined || relay.open || folded.status === "confirmed"
      ? standingWords
      : `${standingWords} ${replayCaution(until, folded.status)}`
  await ctx.db
    .updateTable("checkout_sessions")
    .set({
      status: folded.status,
      exception: folded.exception,
      received: folded.received,
      message,
      payer: lastRow?.from_address ?? session.payer,
      tx_hash: lastRow?.tx_hash ?? null,
      confirmed_at: confirmedAt,
      run_at: unscreened ? again : ended ? null : session.expires_at > ctx.now() ? session.expires_at : again,
      updated_at: ctx.now(),
    })
    .where("id", "=", id)
    .execute()
  const isUnscreened = (row: SessionTransfer) => stands(row) && screeningOf(row) === "unknown"
  const [unsure, done] = [transfers.filter(isUnscreened), transfers.filter(row => !isUnscreened(row))].map(rows =>
    rows.map(row => row.id),
  )
  await endBatch(ctx, done ?? [], unsure ?? [], again)
  if (paidId !== undefined && session.status !== "confirmed") await tellPaid(ctx, network, paidId)
  if (folded.status !== session.status) {
    const { status, exception, received: amountReceived } = folded
    const told = { ...toldOf(session), status, exception, amountReceived, confirmedAt: null, splits: null }
    // What was taken back is named by the transaction that had paid it.
    if (session.status === "confirmed")
      await tellCheckout(ctx, network, "reversed", { ...told, txHash: session.tx_hash, payer: session.payer })
    if (status === "failed" || status === "expired")
      await tellCheckout(ctx, network, status, {
        ...told,
        txHash: lastRow?.tx_hash ?? null,
        payer: lastRow?.from_address ?? null,
      })
    ctx.log.info({ sessionId: id, from: session.status, to: folded.status, exception: folded.exception }, "session")
    paymentChanges.inc({ network: network.name, change: `checkout ${folded.status}` })
  }
  // What nobody can screen is not tried again at once.
  return { waiting: unscreened ? 0 : batch.waiting }
}

/** The session's row, held until the transaction ends: whoever changes its payments holds it. */
export const lockSession = (ctx: TxContext, id: string): Promise<Row<"checkout_sessions">> =>
  ctx.db.selectFrom("checkout_sessions").selectAll().where("id", "=", id).forNoKeyUpdate().executeTakeFirstOrThrow()

/** All that arrived for a session, held until the transaction ends: before any book, as whoever stores what the chain says. */
export const lockTransfers = (ctx: TxContext, id: string) =>
  sql`select t.id from transfers t join deposits d on d.id = t.deposit_id where d.session_id = ${id} order by t.id
    for no key update of t`.execute(ctx.db)

/** Whether it pays the session, or did until the chain took it back. One that only waited is not meant. */
export const everPaid = ({ status, beside, accepted_at, exception }: Row<"payments">): boolean =>
  !beside && (status === "granted" || (status === "reversed" && (accepted_at !== null || exception === null)))

/**
 * What the merchant has decided stands, as long as the chain leaves the money there: what it accepted is reversed while some
 * is gone and paid again when all is back; a return that is not signed yet is stopped.
 */
async function followDecisions(ctx: TxContext, session: Row<"checkout_sessions">): Promise<void> {
  const { rows } = await sql<{ id: string; status: string; amount: bigint; there: bigint; sure: bigint }>`
    select p.id, p.status, p.amount, coalesce(sum(t.value) filter (where t.state <> 'gone'), 0) as there,
      coalesce(sum(t.value) filter (where t.state in ('confirmed', 'final') and t.suspect_at is null
        and not t.single_source), 0) as sure
    from payments p join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
    where p.session_id = ${session.id} and (p.accepted_at is not null or p.status = 'returned') group by p.id`.execute(
    ctx.db,
  )
  for (const { id, status, amount, there, sure } of rows) {
    if (status === "granted" && there < amount) await reverse(ctx, session.id, id)
    if (status === "returned") await stopReturns(ctx, [id])
    if (status !== "reversed" || sure < amount) continue
    // What was accepted beside a payment never pays the session itself, though it comes back first: it may be a stranger's dust.
    await sql`update payments p set status = 'granted', updated_at = ${ctx.now()}, beside = p.beside or exists (select
        from payments m where m.session_id = p.session_id and m.status = 'granted' and not m.beside)
      where p.id = ${id}`.execute(ctx.db)
    await makePayouts(ctx, id)
  }
}

async function reverse(ctx: TxContext, sessionId: string, paymentId: string): Promise<void> {
  await ctx.db
    .updateTable("payments")
    .set({ status: "reversed", updated_at: ctx.now() })
    .where("id", "=", paymentId)
    .execute()
  await cancelPayouts(ctx, paymentId)
  ctx.log.warn({ paymentId, sessionId }, "payment reversed: the chain took it back")
}

/**
 * Whether a hash that was submitted in time, other than those that are in sight, is still looked at; and whether any was
 * refused. A refusal is a fact about its submission: the status answer has it, and the session goes on.
 */
async function submissionsOf(ctx: TxContext, session: Row<"checkout_sessions">, inSight: ReadonlySet<string>) {
  const rows = await ctx.db
    .selectFrom("submissions")
    .select(["tx_hash", "status", "submitted_at"])
    .where("session_id", "=", session.id)
    .execute()
  const open = rows.some(
    row => row.status === "verifying" && row.submitted_at <= session.expires_at && !inSight.has(row.tx_hash),
  )
  return { open, refused: rows.some(row => row.status === "failed") }
}

/**
 * Whether all that was mined by the expiry has been looked at: the last block that the scan has surely read was made after
 * it. No clock of ours says so: the scan may stand still, and a chain that does may make blocks of an earlier time
 * afterwards, as rollups do. So on a chain without new blocks nothing expires; its next block ends what is over. An address
 * that has left the scan comes back for this last look: who pays from elsewhere, without the page, is found only by the hour
 * otherwise.
 */
async function lookedPast(
  ctx: TxContext,
  session: Row<"checkout_sessions">,
  deposit: Row<"deposits">,
): Promise<boolean> {
  const seenAll = session.expires_at.getTime() + LOOK_SLACK_MS
  if (ctx.now() <= session.expires_at) return false
  if (deposit.hot && deposit.watched_number === null) {
    const cursor = await ctx.db
      .selectFrom("cursors")
      .select("block_time")
      .where("chain_id", "=", session.chain_id)
      .executeTakeFirst()
    return (cursor?.block_time?.getTime() ?? 0) > seenAll
  }
  await ctx.db
    .updateTable("deposits")
    .set({ hot: true, hot_until: new Date(ctx.now().getTime() + LAST_LOOK_MS) })
    .where("id", "=", deposit.id)
    .execute()
  return false
}

/** Takes one of the link's uses; false when all are taken. */
export async function takeUse(ctx: TxContext, linkId: string | null): Promise<boolean> {
  if (linkId === null) return true
  const taken = await ctx.db
    .updateTable("payment_links")
    .set(eb => ({ uses: eb("uses", "+", 1) }))
    .where("id", "=", linkId)
    .where(eb => eb.or([eb("max_uses", "is", null), eb("uses", "<", eb.ref("max_uses"))]))
    .executeTakeFirst()
  return taken.numUpdatedRows > 0n
}

/**
 * Writes the session's payment and which transfers are its own. One that waited, or was reversed, and became enough is the
 * session's payment from then on, under the same id. Answers that payment where there is one, its payouts made.
 */
async function writePaid(
  ctx: TxContext,
  session: Row<"checkout_sessions">,
  folded: Folded,
  transfers: readonly SessionTransfer[],
  payments: readonly Row<"payments">[],
): Promise<string | undefined> {
  const main = payments.find(payment => payment.status === "granted" && !payment.beside)
  const byId = new Map(transfers.map(row => [row.id, row]))
  const paid = folded.paid.map(({ id }) => byId.get(id)).filter(row => row !== undefined)
  const last = paid.at(-1)
  if (!last) {
    if (!main) return undefined
    await ctx.db.updateTable("payments").set({ exception: null }).where("id", "=", main.id).execute()
    await reverse(ctx, session.id, main.id)
    return undefined
  }
  const waited = payments.find(row => row.status === "open" && paid.some(({ payment_id }) => payment_id === row.id))
  const known = main ?? payments.find(row => everPaid(row) && row.accepted_at === null) ?? waited
  const amount = sumOf(paid)
  const facts = {
    payer: last.from_address,
    token: last.token,
    amount,
    tx_hash: last.tx_hash,
    status: "granted" as const,
    exception: amount > session.amount ? ("overpaid" as const) : null,
    deposit_id: null,
    recipient_set_id: session.recipient_set_id,
    updated_at: ctx.now(),
  }
  const id = known?.id ?? newId("pay")
  if (!known)
    await ctx.db
      .insertInto("payments")
      .values({
        id,
        merchant_id: session.merchant_id,
        session_id: session.id,
        chain_id: session.chain_id,
        created_at: ctx.now(),
        ...facts,
      })
      .execute()
  await claim(
    ctx,
    id,
    paid.filter(row => row.payment_id !== id),
  )
  if (known) {
    await ctx.db.updateTable("payments").set(facts).where("id", "=", id).execute()
    const ids = paid.map(row => row.id)
    // What was its own and is gone, or only waited with it, is free to count for itself.
    await ctx.db
      .deleteFrom("claims")
      .where("payment_id", "=", id)
      .where(sql<boolean>`transfer_id <> all(${sqlArray("bigint", ids)})`)
      .execute()
  }
  await makePayouts(ctx, id)
  return id
}

const sumOf = (rows: readonly { value: bigint }[]): bigint => rows.reduce((total, row) => total + row.value, 0n)

/** Submitted hashes whose money has arrived have done their work. */
async function acceptSubmissions(
  ctx: TxContext,
  sessionId: string,
  folded: Folded,
  transfers: readonly SessionTransfer[],
): Promise<void> {
  const used = new Set([...folded.paid, ...(folded.rest?.arrivals ?? [])].map(arrival => arrival.id))
  const hashes = transfers.filter(row => used.has(row.id)).map(row => row.tx_hash)
  if (hashes.length === 0) return
  await ctx.db
    .updateTable("submissions")
    .set({ status: "granted", reason: null, run_at: null, updated_at: ctx.now() })
    .where("session_id", "=", sessionId)
    .where(sql<boolean>`tx_hash = any(${sqlArray("text", hashes)})`)
    .where("status", "<>", "granted")
    .execute()
}
