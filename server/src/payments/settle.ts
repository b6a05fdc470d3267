/**
 * Settling: in one database transaction per sender and paywall, confirmed transfers are claimed by payments, payments
 * grant access, and payments whose transfers the chain took back are reversed. The one place where features meet.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import { type Network, networkOf } from "../chain/networks.ts"
import { type Screening, screen } from "../chain/sanctions.ts"
import { type Context, inTransaction } from "../context.ts"
import type { FailureReason, Row } from "../db/schema.ts"
import { newId } from "../ids.ts"
import { paymentChanges } from "../metrics.ts"
import { cancelPayouts, makePayouts } from "../payouts/make-payouts.ts"
import { foldAccess, lockAccess } from "../paywalls/access.ts"
import { tellPayment } from "../paywalls/events.ts"
import { callsOf } from "../paywalls/paywall.ts"
import { foldTransfers, type OpenTransfer, priceAt, recipientSetAt, UNSUBMITTED_MS, type Version } from "./payment.ts"
import { alreadyUsed, type Failure, late, sanctioned, statusMessage, underpaid } from "./reasons.ts"

/** Settling stops after so long and goes on in the next round, so that the round's lease is never outlived. */
const BUDGET_MS = 15_000
/**
 * Open transfers of one sender that are looked at: the newest. A real buyer has a handful; a flood of dust must not cost
 * more than this each time.
 */
const OPEN_TRANSFERS = 2_000
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

async function dueGroups(ctx: Context, network: Network): Promise<Group[]> {
  const due = await sql<{ paywall_id: string; sender: Address; payer: Address | null }>`
    select distinct d.paywall_id, t.from_address as sender, p.payer
    from transfers t join deposits d on d.id = t.deposit_id
      left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where t.chain_id = ${network.chainId} and t.run_at <= ${ctx.now()} and d.paywall_id is not null
    order by 1, 2, 3`.execute(ctx.db)
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

type GroupTransfer = Row<"transfers"> & { payment_id: string | null; payment_payer: Address | null }

/** Settles a group's transfers; call it inside a transaction. All are reversed before any is granted. */
async function settle(ctx: Context, { paywallId, payers }: Group, screened: Map<Address, Screening>): Promise<void> {
  for (const payer of payers) await lockAccess(ctx, paywallId, payer)
  const paywall = await ctx.db.selectFrom("paywalls").selectAll().where("id", "=", paywallId).executeTakeFirstOrThrow()
  const network = networkOf(ctx.chain, paywall.chain_id)
  const looked = await lockDueTransfers(ctx, paywallId, payers)
  for (const payer of payers) await reversePayments(ctx, network, paywallId, payer, looked)
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
}

/** Grants one sender what its open transfers reach; answers when those that have to wait are due again. */
async function settlePayer(
  ctx: Context,
  paywall: Row<"paywalls">,
  network: Network,
  payer: Address,
  screening: Screening | undefined,
): Promise<Map<bigint, Date>> {
  const now = ctx.now().getTime()
  const transfers = await openTransfers(ctx, paywall.id, payer, network)
  if (transfers.length === 0) return new Map()
  const submitted = await submittedHashes(ctx, paywall.id, payer)
  const versions = await versionsOf(ctx, paywall.id)
  const byId = new Map(transfers.map(transfer => [transfer.id, transfer]))
  const rowsOf = (parts: readonly OpenTransfer[]) =>
    parts.map(part => byId.get(part.id)).filter(row => row !== undefined)
  // What is suspected of having been displaced is neither counted nor forgotten.
  const sure = transfers.filter(transfer => transfer.suspect_at === null)
  const open: OpenTransfer[] = sure.map(transfer => ({
    id: transfer.id,
    value: transfer.value,
    minedAt: transfer.block_time,
    price: priceAt(versions, transfer.deposit_id, transfer.block_time),
    ready: submitted.has(transfer.tx_hash) || transfer.block_time.getTime() + UNSUBMITTED_MS <= now,
  }))
  const wait = new Map(
    transfers.filter(each => each.suspect_at !== null).map(each => [each.id, new Date(now + UNSCREENED_MS)]),
  )
  for (const { id, ready, minedAt } of open) if (!ready) wait.set(id, new Date(minedAt.getTime() + UNSUBMITTED_MS))

  if (screening === undefined || screening === "unknown") {
    for (const { id, ready } of open) if (ready) wait.set(id, new Date(now + UNSCREENED_MS))
    return wait
  }
  if (screening === "listed") {
    await failSubmissions(ctx, paywall.id, payer, rowsOf(open), sanctioned)
    return wait
  }
  const { paid, short, late: tooLate } = foldTransfers(open)
  // Each reversed payment of this sender can come back once.
  const revivable = new Set(transfers.filter(each => each.payment_payer === payer).map(each => each.payment_id))
  for (const parts of paid) {
    const rows = rowsOf(parts)
    const revived = rows.find(row => revivable.delete(row.payment_id))?.payment_id ?? undefined
    await grantPayment(ctx, paywall, versions, payer, rows, revived)
  }
  await failSubmissions(ctx, paywall.id, payer, rowsOf(tooLate), late)
  // While more is on its way, it is too early to call what came too little.
  if (short.length > 0 && !(await moreIsComing(ctx, paywall.id, payer)))
    for (const { transfers: parts, received, price } of short)
      await failSubmissions(ctx, paywall.id, payer, rowsOf(parts), underpaid(received, price, network.token))
  return wait
}

const submittedHashes = async (ctx: Context, paywallId: string, payer: Address): Promise<Set<Hash>> => {
  const submissions = ctx.db
    .selectFrom("submissions")
    .select("tx_hash")
    .where("paywall_id", "=", paywallId)
    .where("address", "=", payer)
  return new Set((await submissions.execute()).map(row => row.tx_hash))
}

const IDS_A_STATEMENT = 1_000

async function setDue(ctx: Context, ids: readonly bigint[], runAt: Date | null): Promise<void> {
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
async function lockDueTransfers(ctx: Context, paywallId: string, payers: readonly Address[]): Promise<bigint[]> {
  const rows = await sql<{ id: bigint }>`
    select t.id from transfers t join deposits d on d.id = t.deposit_id
    where d.paywall_id = ${paywallId} and t.run_at <= ${ctx.now()} and t.state <> 'seen'
      and (t.from_address in (${sql.join(payers)}) or exists (select from claims c join payments p on p.id = c.payment_id
        where c.transfer_id = t.id and p.payer in (${sql.join(payers)})))
    order by t.id for update of t`.execute(ctx.db)
  return rows.rows.map(row => row.id)
}

/**
 * Payments that no longer have all their money are undone; their grants are revoked unless the merchant did so before. A
 * payment with a transfer that is only seen waits: an unconfirmed block is no evidence. One whose grant the merchant had
 * revoked has its money again when its transfers are back, and no more than that.
 */
async function reversePayments(
  ctx: Context,
  network: Network,
  paywallId: string,
  payer: Address,
  looked: readonly bigint[],
): Promise<void> {
  if (looked.length === 0) return
  const has = sql`(select coalesce(sum(t.value), 0) from claims c join transfers t on t.id = c.transfer_id
    where c.payment_id = p.id and t.state <> 'gone' and t.from_address = p.payer)`
  const touched = sql`p.paywall_id = ${paywallId} and p.payer = ${payer}
    and exists (select from claims c where c.payment_id = p.id and c.transfer_id = any(${sql.val(`{${looked.join(",")}}`)}::bigint[]))
    and not exists (select from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id and t.state = 'seen')`
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
    where ${touched} and p.status = 'reversed' and p.amount <= ${has}
      and exists (select from grants g where g.payment_id = p.id and g.revoked_by = 'merchant') returning id`.execute(
    ctx.db,
  )
  for (const { id } of back.rows) await makePayouts(ctx, id)
}

/**
 * Confirmed transfers in the settlement token that count for no payment, or for one that was reversed, in chain order. What
 * a merchant had revoked the access of stays used.
 */
async function openTransfers(
  ctx: Context,
  paywallId: string,
  payer: Address,
  network: Network,
): Promise<GroupTransfer[]> {
  const rows = await sql<GroupTransfer>`
    select * from (
      select t.*, p.id as payment_id, p.payer as payment_payer from transfers t
        join deposits d on d.id = t.deposit_id
        left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
        left join grants g on g.payment_id = p.id
      where d.paywall_id = ${paywallId} and t.from_address = ${payer} and t.token = ${network.token.address}
        and t.state in ('confirmed', 'final') and (p.id is null or p.status = 'reversed')
        and g.revoked_by is distinct from 'merchant'
      order by t.block_number desc, t.log_index desc limit ${OPEN_TRANSFERS}) as newest
    order by block_number, log_index`.execute(ctx.db)
  return rows.rows
}

const versionsOf = async (ctx: Context, paywallId: string): Promise<Version[]> =>
  (await ctx.db.selectFrom("paywall_versions").selectAll().where("paywall_id", "=", paywallId).execute()).map(row => ({
    n: row.n,
    price: row.price,
    active: row.active,
    depositId: row.deposit_id,
    recipientSetId: row.recipient_set_id,
    fromAt: row.from_at,
    untilAt: row.until_at,
  }))

/** Claims the transfers and grants: as a new payment, or as the reversed one that they belonged to. */
async function grantPayment(
  ctx: Context,
  paywall: Row<"paywalls">,
  versions: readonly Version[],
  payer: Address,
  transfers: readonly GroupTransfer[],
  revived: string | undefined,
): Promise<void> {
  const now = ctx.now()
  const last = transfers.at(-1)
  if (!last) throw new Error("a payment has no transfer")
  const amount = transfers.reduce((total, transfer) => total + transfer.value, 0n)
  const paymentId = revived ?? newId("pay")
  const facts = { amount, tx_hash: last.tx_hash, status: "granted" as const, updated_at: now }
  const owner = { merchant_id: paywall.merchant_id, paywall_id: paywall.id }
  const first = { id: paymentId, ...owner, chain_id: paywall.chain_id, payer, created_at: now }
  // Kept when the payment comes back: who is paid was decided when it was made.
  const route = { recipient_set_id: recipientSetAt(versions, last.block_time) }
  if (!revived)
    await ctx.db
      .insertInto("payments")
      .values({ ...first, ...facts, ...route })
      .execute()
  // A claim moves only away from a reversed payment. Whatever else stands there already is a transfer counted twice.
  const claimed = await sql`
    insert into claims (transfer_id, payment_id) values ${sql.join(transfers.map(each => sql`(${each.id}::bigint, ${paymentId})`))}
    on conflict (transfer_id) do update set payment_id = excluded.payment_id
      where exists (select from payments p where p.id = claims.payment_id and p.status = 'reversed')`.execute(ctx.db)
  if (claimed.numAffectedRows !== BigInt(transfers.length))
    throw new Error("a transfer is already claimed by another payment")
  if (revived) {
    await ctx.db.updateTable("payments").set(facts).where("id", "=", paymentId).execute()
    // A transfer that is still gone must be free to count anew if it returns: others have paid in its place.
    await ctx.db
      .deleteFrom("claims")
      .where("payment_id", "=", paymentId)
      .where(
        "transfer_id",
        "not in",
        transfers.map(each => each.id),
      )
      .execute()
    await ctx.db
      .updateTable("grants")
      .set({ revoked_at: null, revoked_by: null, revoke_reason: null, granted_at: now, tx_hash: last.tx_hash })
      .where("payment_id", "=", paymentId)
      .where("revoked_by", "=", "reorg")
      .execute()
  } else {
    await ctx.db
      .insertInto("grants")
      .values({
        id: newId("grant"),
        payment_id: paymentId,
        paywall_id: paywall.id,
        address: payer,
        tx_hash: last.tx_hash,
        duration_s: paywall.access_duration_s,
        calls: callsOf(paywall.pricing_model),
        granted_at: now,
      })
      .execute()
  }
  await ctx.db
    .updateTable("submissions")
    .set({ status: "granted", reason: null, message: statusMessage.granted, run_at: null, updated_at: now })
    .where("paywall_id", "=", paywall.id)
    .where("address", "=", payer)
    .where("tx_hash", "in", hashesOf(transfers))
    .execute()
  await makePayouts(ctx, paymentId)
  const network = networkOf(ctx.chain, paywall.chain_id)
  await tellPayment(ctx, network, paymentId, "granted")
  ctx.log.info({ paymentId, paywallId: paywall.id, payer, txHash: last.tx_hash }, "payment granted")
  paymentChanges.inc({ network: network.name, change: "granted" })
}

/** Ends the submissions of these transfers that are still looked at, with a reason. */
async function failSubmissions(
  ctx: Context,
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
async function moreIsComing(ctx: Context, paywallId: string, payer: Address): Promise<boolean> {
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
async function endClaimedSubmissions(ctx: Context, paywallId: string, payer: Address): Promise<void> {
  await sql`update submissions s set run_at = null, updated_at = ${ctx.now()},
      status = case when g.revoked_by = 'merchant' then 'failed' else 'granted' end,
      reason = case when g.revoked_by = 'merchant' then ${alreadyUsed.reason} end,
      message = case when g.revoked_by = 'merchant' then ${alreadyUsed.message} else ${statusMessage.granted} end
    from transfers t join claims c on c.transfer_id = t.id join payments p on p.id = c.payment_id
      join grants g on g.payment_id = p.id
    where s.paywall_id = ${paywallId} and s.address = ${payer} and s.status = 'verifying' and p.paywall_id = ${paywallId}
      and p.payer = ${payer} and p.status = 'granted' and t.tx_hash = s.tx_hash and t.chain_id = s.chain_id`.execute(
    ctx.db,
  )
}
