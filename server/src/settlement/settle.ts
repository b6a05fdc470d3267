/**
 * Settling: in one database transaction per sender and paywall, confirmed transfers are claimed by payments, payments
 * grant access, and payments whose transfers the chain took back are reversed. The one place where features meet.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import { type Network, type NetworkInfo, networkOf } from "../chain/networks.ts"
import { type Screening, screen } from "../chain/sanctions.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { FailureReason, Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { newId } from "../ids.ts"
import { paymentChanges } from "../metrics.ts"
import { cancelPayouts, makePayouts } from "../payouts/make-payouts.ts"
import { stopReturns } from "../payouts/make-returns.ts"
import { foldAccess, lockAccess } from "../paywalls/access.ts"
import { tellPayment } from "../paywalls/events.ts"
import { alreadyUsed, type Failure, late, sanctioned, statusMessage, underpaid } from "../scanner/submission-faults.ts"
import { type ClaimedTransfer, claim, hashesClaimed, type Waiting, wasGranted, writeOpen } from "./exceptions.ts"
import { giveAccess } from "./give-access.ts"
import { tellPaid } from "./notify-paid.ts"
import {
  foldTransfers,
  leastPrice,
  type OpenTransfer,
  priceAt,
  recipientSetAt,
  UNSUBMITTED_MS,
  type Version,
} from "./payment.ts"
import { believed, countedAlone } from "./single-source.ts"

/** Settling stops after so long and goes on in the next round, so that the round's lease is never outlived. */
const BUDGET_MS = 15_000
/**
 * Open transfers of one sender that are looked at: the newest. A real buyer has a handful; a flood of dust must not cost
 * more than this each time.
 */
const OPEN_TRANSFERS = 2_000
/** Due transfers of a group that one transaction looks at; the others stay due, and come in the next round. */
const DUE_A_BATCH = 5_000
/** Groups in one round, of each paywall in its turn: a flood of senders at one must not keep the buyers of others waiting. */
const GROUPS_A_ROUND = 500
/** While the screening can't be done, grants wait so long before they are tried again. */
const UNSCREENED_MS = 30_000

/** Senders who are settled together: more than one only where a transaction, mined again, moved a claimed transfer from another. */
interface Group {
  paywallId: string
  payers: Address[]
}

/** Settles what is due on the network; answers how many groups were looked at. One that fails does not keep the others. */
export async function settleDue(ctx: Context, network: Network): Promise<number> {
  const groups = await dueGroups(ctx, network)
  if (groups.length === 0) return 0
  // Asked before the transactions: a list is a file or a contract, and neither belongs inside one.
  const screened = await screen(ctx, [...new Set(groups.flatMap(group => group.payers))], "grant")
  const until = performance.now() + BUDGET_MS
  for (const group of groups) {
    if (ctx.signal.aborted || performance.now() > until) break
    try {
      await inTransaction(ctx, ctx => settle(ctx, group, screened))
    } catch (error) {
      ctx.log.error({ err: error, ...group }, "settling failed and will be tried again")
    }
  }
  await ctx.wakes.wake("payments")
  ctx.wakes.wakeSoon("deliveries")
  await ctx.wakes.wake("payouts")
  return groups.length
}

/** Who submitted a hash comes before who did not, and much money before little: dust waits for whoever may be waiting. */
async function dueGroups(ctx: Context, network: Network): Promise<Group[]> {
  const due = await sql<{ paywall_id: string; sender: Address; payer: Address | null }>`
    select d.paywall_id, t.from_address as sender, p.payer
    from transfers t join deposits d on d.id = t.deposit_id
      left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where t.chain_id = ${network.chainId} and t.run_at <= ${ctx.now()} and d.paywall_id is not null
    group by 1, 2, 3 order by row_number() over (partition by d.paywall_id order by
        exists (select from submissions s where s.paywall_id = d.paywall_id and s.address = t.from_address) desc,
        sum(t.value) filter (where t.token = ${network.token.address}) desc nulls last, min(t.run_at), t.from_address, p.payer), 1
    limit ${GROUPS_A_ROUND}`.execute(ctx.db)
  const groups = new Map<string, Group>()
  for (const { paywall_id, sender, payer } of due.rows) {
    const moved = payer !== null && payer !== sender
    // Rare enough that all of a paywall's moved transfers make one group.
    const key = moved ? `${paywall_id} moved` : `${paywall_id} ${sender}`
    const group = groups.get(key) ?? { paywallId: paywall_id, payers: [] }
    groups.set(key, { ...group, payers: [...new Set([...group.payers, sender, ...(payer ? [payer] : [])])].sort() })
  }
  return [...groups.values()]
}

type GroupTransfer = ClaimedTransfer & { payment_payer: Address | null }

/** Settles a group's transfers; call it inside a transaction. All are reversed before any is granted. */
async function settle(ctx: TxContext, { paywallId, payers }: Group, screened: Map<Address, Screening>): Promise<void> {
  for (const payer of payers) await lockAccess(ctx, paywallId, payer)
  const paywall = await ctx.db.selectFrom("paywalls").selectAll().where("id", "=", paywallId).executeTakeFirstOrThrow()
  const network = networkOf(ctx.chain, paywall.chain_id)
  const looked = await lockDueTransfers(ctx, paywallId, payers)
  for (const payer of payers) await reversePayments(ctx, network, paywall, payer, looked)
  const wait = new Map<bigint, Date>()
  for (const payer of payers) {
    for (const [id, at] of await settlePayer(ctx, paywall, network, payer, screened.get(payer))) wait.set(id, at)
    await endClaimedSubmissions(ctx, paywallId, payer)
    await foldAccess(ctx, paywallId, payer)
  }
  await setDue(
    ctx,
    looked.filter(id => !wait.has(id)),
    null,
  )
  for (const at of new Set([...wait.values()].map(date => date.getTime())))
    await setDue(
      ctx,
      looked.filter(id => wait.get(id)?.getTime() === at),
      new Date(at),
    )
  await waitToo(ctx, looked, wait)
}

/** Those that have to wait and were not due: what another of their payment has lost, they are without as well. */
async function waitToo(ctx: TxContext, looked: readonly bigint[], wait: ReadonlyMap<bigint, Date>): Promise<void> {
  const due = new Set(looked)
  const others = [...wait].filter(([id]) => !due.has(id))
  const [ids, times] = [others.map(([id]) => id), others.map(([, at]) => at.toISOString())]
  await sql`update transfers t set run_at = others.at
    from unnest(${sqlArray("bigint", ids)}, ${sqlArray("timestamptz", times)}) as others (id, at)
    where t.id = others.id and t.run_at is null`.execute(ctx.db)
}

/**
 * Grants one sender what its open transfers reach, and lists what they don't for the merchant; answers when those that have
 * to wait are due again.
 */
async function settlePayer(
  ctx: TxContext,
  paywall: Row<"paywalls">,
  network: NetworkInfo,
  payer: Address,
  screening: Screening | undefined,
): Promise<Map<bigint, Date>> {
  const now = ctx.now().getTime()
  const soon = new Date(now + UNSCREENED_MS)
  const transfers = await openTransfers(ctx, paywall.id, payer, network, "=")
  const others = await openTransfers(ctx, paywall.id, payer, network, "<>")
  const submitted = await submittedHashes(ctx, paywall.id, payer)
  const versions = await versionsOf(ctx, paywall.id)
  const byId = new Map(transfers.map(transfer => [transfer.id, transfer]))
  const rowsOf = (parts: readonly OpenTransfer[]) =>
    parts.map(part => byId.get(part.id)).filter(row => row !== undefined)
  const list = async (looked: readonly GroupTransfer[], waiting: readonly Waiting[]) => {
    const { id: paywall_id, merchant_id, chain_id } = paywall
    const owner = { merchant_id, chain_id, paywall_id, session_id: null }
    await writeOpen(ctx, owner, payer, looked, waiting, row => recipientSetAt(versions, row.block_time))
  }
  // What is suspected of having been displaced is neither counted nor forgotten.
  const standing = transfers.filter(transfer => transfer.suspect_at === null)
  const standingOthers = others.filter(transfer => transfer.suspect_at === null)
  const isBelieved = believed(ctx, network, standing, await countedAlone(ctx, network, paywall.id, payer))
  const [sure, wrong] = [standing.filter(isBelieved), standingOthers.filter(isBelieved)]
  const open: OpenTransfer[] = sure.map(transfer => ({
    id: transfer.id,
    value: transfer.value,
    minedAt: transfer.block_time,
    price: priceAt(versions, transfer.deposit_id, transfer.block_time),
    ready: submitted.has(transfer.tx_hash) || transfer.block_time.getTime() + UNSUBMITTED_MS <= now,
  }))
  const suspected = [...transfers, ...others].filter(each => each.suspect_at !== null)
  const wait = new Map(suspected.map(each => [each.id, soon]))
  for (const { id, ready, minedAt } of open) if (!ready) wait.set(id, new Date(minedAt.getTime() + UNSUBMITTED_MS))

  if (screening === undefined || screening === "unknown") {
    for (const { id } of [...open.filter(each => each.ready), ...wrong]) wait.set(id, soon)
    await list([], [])
    return wait
  }
  if (screening === "listed") {
    await failSubmissions(ctx, paywall.id, payer, sure, sanctioned)
    await list([...standing, ...standingOthers], [{ exception: "sanctioned", transfers: [...sure, ...wrong] }])
    return wait
  }
  const { paid, short, late: tooLate } = foldTransfers(open)
  // Each payment of this sender that was reversed, or waits, can be granted once.
  const known = new Set(transfers.filter(each => each.payment_payer === payer).map(each => each.payment_id))
  for (const parts of paid) {
    const rows = rowsOf(parts)
    const id = rows.find(row => known.delete(row.payment_id))?.payment_id ?? undefined
    await grantPayment(ctx, paywall, versions, payer, rows, leastPrice(parts), id)
  }
  await failSubmissions(ctx, paywall.id, payer, rowsOf(tooLate), late)
  // While more is on its way, it is too early to call what came too little.
  if (short.length > 0 && !(await moreIsComing(ctx, paywall.id, payer)))
    for (const { transfers: parts, received, price } of short)
      await failSubmissions(ctx, paywall.id, payer, rowsOf(parts), underpaid(received, price, network.token))
  await list(
    [...standing, ...standingOthers],
    [
      { exception: "underpaid", transfers: short.flatMap(each => rowsOf(each.transfers)) },
      { exception: "late", transfers: rowsOf(tooLate) },
      { exception: "wrong_asset", transfers: wrong },
    ],
  )
  return wait
}

const submittedHashes = async (ctx: TxContext, paywallId: string, payer: Address): Promise<Set<Hash>> => {
  const submissions = ctx.db
    .selectFrom("submissions")
    .select("tx_hash")
    .where("paywall_id", "=", paywallId)
    .where("address", "=", payer)
  return new Set((await submissions.execute()).map(row => row.tx_hash))
}

const IDS_A_STATEMENT = 1_000

async function setDue(ctx: TxContext, ids: readonly bigint[], runAt: Date | null): Promise<void> {
  for (let start = 0; start < ids.length; start += IDS_A_STATEMENT)
    await ctx.db
      .updateTable("transfers")
      .set({ run_at: runAt })
      .where("id", "in", ids.slice(start, start + IDS_A_STATEMENT))
      .execute()
}

/**
 * The due transfers of these senders, and those a payment of theirs claims, held until the transaction ends. Not those
 * that are only seen: their confirmation makes them due.
 */
async function lockDueTransfers(ctx: TxContext, paywallId: string, payers: readonly Address[]): Promise<bigint[]> {
  // Each part by its own index: with an "or" all that is due at the paywall would be read for each of a flood's senders.
  const rows = await sql<{ id: bigint }>`
    select t.id from transfers t where t.run_at <= ${ctx.now()} and t.state <> 'seen' and t.id in (
      select s.id from deposits d join transfers s on s.deposit_id = d.id
        where d.paywall_id = ${paywallId} and s.from_address in (${sql.join(payers)})
      union select c.transfer_id from payments p join claims c on c.payment_id = p.id
        where p.paywall_id = ${paywallId} and p.payer in (${sql.join(payers)}))
    order by t.id limit ${DUE_A_BATCH} for no key update of t`.execute(ctx.db)
  return rows.rows.map(row => row.id)
}

/**
 * Payments that no longer have all their money are undone; their grants are revoked unless the merchant did so before. A
 * payment with a transfer that is only seen waits: an unconfirmed block is no evidence. One whose grant the merchant had
 * revoked has its money again when its transfers are back, and no more than that.
 */
async function reversePayments(
  ctx: TxContext,
  network: NetworkInfo,
  paywall: Row<"paywalls">,
  payer: Address,
  looked: readonly bigint[],
): Promise<void> {
  if (looked.length === 0) return
  const paywallId = paywall.id
  const has = sql`(select coalesce(sum(t.value), 0) from claims c join transfers t on t.id = c.transfer_id
    where c.payment_id = p.id and t.state <> 'gone' and t.from_address = p.payer)`
  const touched = sql`p.paywall_id = ${paywallId} and p.payer = ${payer}
    and exists (select from claims c where c.payment_id = p.id and c.transfer_id = any(${sqlArray("bigint", looked)}))
    and not exists (select from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id and t.state = 'seen')`
  const isBack = sql`p.status = 'reversed' and p.amount <= ${has} and not exists (
    select from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id and t.single_source)`
  const reversed = await sql<{ id: string }>`
    update payments p set status = 'reversed', updated_at = ${ctx.now()}
    where ${touched} and p.status = 'granted' and p.amount > ${has} returning id`.execute(ctx.db)
  for (const { id } of reversed.rows) {
    await ctx.db
      .updateTable("grants")
      .set({ revoked_at: ctx.now(), revoked_by: "reorg", revoke_reason: "the chain took the payment back" })
      .where("payment_id", "=", id)
      .where("revoked_at", "is", null)
      .execute()
    await sql`update submissions s set status = 'reversed', message = ${statusMessage.reversed}, updated_at = ${ctx.now()}
      from claims c join transfers t on t.id = c.transfer_id
      where c.payment_id = ${id} and s.paywall_id = ${paywallId} and s.address = ${payer} and s.tx_hash = t.tx_hash
        and s.status = 'granted'`.execute(ctx.db)
    await cancelPayouts(ctx, id)
    await tellPayment(ctx, network, id, "reversed")
    ctx.log.warn({ paymentId: id, paywallId, payer }, "payment reversed: the chain took it back")
    paymentChanges.inc({ network: network.name, change: "reversed" })
  }
  const back = await sql<{ id: string }>`update payments p set status = 'granted', updated_at = ${ctx.now()}
    where ${touched} and ${isBack}
      and exists (select from grants g where g.payment_id = p.id and g.revoked_by = 'merchant') returning id`.execute(
    ctx.db,
  )
  for (const { id } of back.rows) {
    await makePayouts(ctx, id)
    await tellPaid(ctx, network, id)
  }
  // What the merchant let count is paid again when all of it is back.
  const accepted = await sql<Row<"payments">>`update payments p set status = 'granted', updated_at = ${ctx.now()}
    where ${touched} and ${isBack} and p.accepted_at is not null returning *`.execute(ctx.db)
  for (const payment of accepted.rows) await giveAccess(ctx, paywall, payment, await hashesClaimed(ctx, payment.id))
  const returned = await sql<{
    id: string
  }>`select id from payments p where ${touched} and p.status = 'returned'`.execute(ctx.db)
  await stopReturns(
    ctx,
    returned.rows.map(row => row.id),
  )
}

/**
 * Confirmed transfers in the settlement token (`=`) or any other (`<>`) that count for no payment, or for one that waits or
 * was reversed, in chain order. What a merchant had revoked the access of stays used.
 */
async function openTransfers(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  network: NetworkInfo,
  which: "=" | "<>",
): Promise<GroupTransfer[]> {
  const rows = await sql<GroupTransfer>`
    select * from (
      select t.*, p.id as payment_id, p.status as payment_status, p.payer as payment_payer from transfers t
        join deposits d on d.id = t.deposit_id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
        left join grants g on g.payment_id = p.id
      where d.paywall_id = ${paywallId} and t.from_address = ${payer} and t.token ${sql.raw(which)} ${network.token.address}
        and t.state in ('confirmed', 'final') and (p.id is null or p.status in ('reversed', 'open'))
        and g.revoked_by is distinct from 'merchant'
      order by t.block_number desc, t.log_index desc limit ${OPEN_TRANSFERS}) as newest
    order by block_number, log_index`.execute(ctx.db)
  return rows.rows
}

const versionsOf = async (ctx: TxContext, paywallId: string): Promise<Version[]> =>
  (await ctx.db.selectFrom("paywall_versions").selectAll().where("paywall_id", "=", paywallId).execute()).map(row => ({
    n: row.n,
    price: row.price,
    active: row.active,
    depositId: row.deposit_id,
    recipientSetId: row.recipient_set_id,
    fromAt: row.from_at,
    untilAt: row.until_at,
  }))

/** Claims the transfers and grants: as a new payment, or as the one (`known`) that waited with them or was reversed. */
async function grantPayment(
  ctx: TxContext,
  paywall: Row<"paywalls">,
  versions: readonly Version[],
  payer: Address,
  transfers: readonly GroupTransfer[],
  price: bigint,
  known: string | undefined,
): Promise<void> {
  const last = transfers.at(-1)
  if (!last) throw new Error("a payment has no transfer")
  const amount = transfers.reduce((total, transfer) => total + transfer.value, 0n)
  const id = known ?? newId("pay")
  const facts = {
    amount,
    tx_hash: last.tx_hash,
    status: "granted" as const,
    exception: amount > price ? ("overpaid" as const) : null,
    deposit_id: null,
    accepted_at: null,
    updated_at: ctx.now(),
  }
  // Kept when a reversed payment comes back, or what was left of it: who is paid was decided when it was granted first.
  const route = { recipient_set_id: recipientSetAt(versions, last.block_time) }
  const first = { merchant_id: paywall.merchant_id, paywall_id: paywall.id, chain_id: paywall.chain_id, payer }
  if (!known)
    await ctx.db
      .insertInto("payments")
      .values({ id, ...first, ...facts, ...route, token: last.token, created_at: ctx.now() })
      .execute()
  await claim(ctx, id, transfers)
  if (known) {
    const waited =
      transfers.some(row => row.payment_id === known && row.payment_status === "open") &&
      !(await wasGranted(ctx, known))
    await ctx.db
      .updateTable("payments")
      .set({ ...facts, ...(waited ? route : {}) })
      .where("id", "=", id)
      .execute()
    // The others must be free to count anew: a transfer that is gone may return when others have paid in its place.
    await ctx.db
      .deleteFrom("claims")
      .where("payment_id", "=", id)
      .where(
        "transfer_id",
        "not in",
        transfers.map(each => each.id),
      )
      .execute()
  }
  await giveAccess(ctx, paywall, { id, payer, tx_hash: last.tx_hash }, hashesOf(transfers))
}

/** Ends the submissions of these transfers that are still looked at, with a reason. */
async function failSubmissions(
  ctx: TxContext,
  paywallId: string,
  payer: Address,
  transfers: readonly { tx_hash: Hash }[],
  { reason, message }: Failure & { reason: FailureReason },
): Promise<void> {
  if (transfers.length === 0) return
  await ctx.db
    .updateTable("submissions")
    .set({ status: "failed", reason, message, run_at: null, updated_at: ctx.now() })
    .where("paywall_id", "=", paywallId)
    .where("address", "=", payer)
    .where("tx_hash", "in", hashesOf(transfers))
    .where("status", "in", ["verifying", "failed"])
    .execute()
}

const hashesOf = (transfers: readonly { tx_hash: Hash }[]): Hash[] => [
  ...new Set(transfers.map(transfer => transfer.tx_hash)),
]

/** Whether a transfer of this sender to this paywall was seen that is not confirmed yet. */
async function moreIsComing(ctx: TxContext, paywallId: string, payer: Address): Promise<boolean> {
  const seen = await ctx.db
    .selectFrom("transfers")
    .innerJoin("deposits", "deposits.id", "transfers.deposit_id")
    .select("transfers.id")
    .where("deposits.paywall_id", "=", paywallId)
    .where("transfers.from_address", "=", payer)
    .where("transfers.state", "=", "seen")
    .executeTakeFirst()
  return seen !== undefined
}

/** A submission that came when its transfer was already claimed ends as that payment did. */
async function endClaimedSubmissions(ctx: TxContext, paywallId: string, payer: Address): Promise<void> {
  await sql`update submissions s set run_at = null, updated_at = ${ctx.now()}, status = ended.status,
      reason = ended.reason, message = ended.message
    from (select t.tx_hash, t.chain_id,
        case when p.status = 'returned' or g.revoked_by = 'merchant' then 'failed' else 'granted' end as status,
        case when p.status = 'returned' then p.exception when g.revoked_by = 'merchant' then ${alreadyUsed.reason} end as reason,
        case when p.status = 'returned' then ${statusMessage.returned}
          when g.revoked_by = 'merchant' then ${alreadyUsed.message} else ${statusMessage.granted} end as message
      from payments p join claims c on c.payment_id = p.id join transfers t on t.id = c.transfer_id
        left join grants g on g.payment_id = p.id
      where p.paywall_id = ${paywallId} and p.payer = ${payer}
        and (p.status = 'returned' or (p.status = 'granted' and g.id is not null))) as ended
    where s.paywall_id = ${paywallId} and s.address = ${payer} and s.status = 'verifying' and ended.tx_hash = s.tx_hash
      and ended.chain_id = s.chain_id`.execute(ctx.db)
}
