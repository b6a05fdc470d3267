/**
 * Settling: in one database transaction per sender and paywall, confirmed transfers are claimed by payments, payments
 * grant access, and payments whose transfers the chain took back are reversed. The one place where features meet.
 */
import { type RawBuilder, sql } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import { type Network, networkOf } from "../chain/networks.ts"
import { isSanctioned } from "../chain/sanctions.ts"
import { type Context, inTransaction } from "../context.ts"
import type { FailureReason, Row } from "../db/schema.ts"
import { newId } from "../ids.ts"
import { paymentChanges } from "../metrics.ts"
import { foldAccess, lockAccess } from "../paywalls/access.ts"
import { foldTransfers, type OpenTransfer, priceAt, UNSUBMITTED_MS, type Version } from "./payment.ts"
import { alreadyUsed, type Failure, late, sanctioned, statusMessage, underpaid } from "./reasons.ts"

/** Settles everything that is due on the network; answers how many senders were looked at. */
export async function settleDue(ctx: Context, network: Network): Promise<number> {
  // The payer beside the sender: a transaction that is mined again may move the same transfer from another address.
  const groups = await sql<{ paywall_id: string; payer: Address }>`
    select d.paywall_id, t.from_address as payer from transfers t join deposits d on d.id = t.deposit_id
      where t.chain_id = ${network.chainId} and t.run_at <= ${ctx.now()}
    union
    select p.paywall_id, p.payer from transfers t join claims c on c.transfer_id = t.id join payments p on p.id = c.payment_id
      where t.chain_id = ${network.chainId} and t.run_at <= ${ctx.now()}
    order by 1, 2`.execute(ctx.db)
  for (const { paywall_id, payer } of groups.rows) {
    if (ctx.signal.aborted) break
    // Asked before the transaction: a list is a file or a contract, and neither belongs inside one.
    const barred = await isSanctioned(ctx, payer, `grant:${paywall_id}`)
    await inTransaction(ctx, ctx => settle(ctx, paywall_id, payer, barred))
  }
  if (groups.rows.length > 0) await ctx.wakes.wake("payments")
  return groups.rows.length
}

type GroupTransfer = Row<"transfers"> & { payment_id: string | null; payment_payer: Address | null }

/** Settles one sender's transfers to one paywall; call it inside a transaction. */
async function settle(ctx: Context, paywallId: string, payer: Address, barred: boolean): Promise<void> {
  await lockAccess(ctx, paywallId, payer)
  const looked = await lockDueTransfers(ctx, paywallId, payer)
  const paywall = await ctx.db.selectFrom("paywalls").selectAll().where("id", "=", paywallId).executeTakeFirstOrThrow()
  const network = networkOf(ctx.chain, paywall.chain_id)
  await reversePayments(ctx, network, paywallId, payer)

  const transfers = await openTransfers(ctx, paywallId, payer, network)
  const submitted = new Set(
    (
      await ctx.db
        .selectFrom("submissions")
        .select("tx_hash")
        .where("paywall_id", "=", paywallId)
        .where("address", "=", payer)
        .execute()
    ).map(row => row.tx_hash),
  )
  const versions = await versionsOf(ctx, paywallId)
  const readyBefore = ctx.now().getTime() - UNSUBMITTED_MS
  const byId = new Map(transfers.map(transfer => [transfer.id, transfer]))
  const open: OpenTransfer[] = transfers.map(transfer => ({
    id: transfer.id,
    value: transfer.value,
    minedAt: transfer.block_time,
    price: priceAt(versions, transfer.deposit_id, transfer.block_time),
    ready: submitted.has(transfer.tx_hash) || transfer.block_time.getTime() <= readyBefore,
  }))
  const rowsOf = (parts: readonly OpenTransfer[]) =>
    parts.map(part => byId.get(part.id)).filter(row => row !== undefined)

  if (barred) {
    await failSubmissions(ctx, paywallId, payer, transfers, sanctioned)
  } else {
    const { paid, short, late: tooLate } = foldTransfers(open)
    // Each reversed payment of this sender can come back once.
    const revivable = new Set(transfers.filter(each => each.payment_payer === payer).map(each => each.payment_id))
    for (const parts of paid) {
      const rows = rowsOf(parts)
      const revived = rows.find(row => revivable.delete(row.payment_id))?.payment_id ?? undefined
      await grantPayment(ctx, paywall, payer, rows, revived)
    }
    if (tooLate.length > 0) await failSubmissions(ctx, paywallId, payer, rowsOf(tooLate), late)
    // While more is on its way, it is too early to call what came too little.
    if (short && !(await moreIsComing(ctx, paywallId, payer)))
      await failSubmissions(
        ctx,
        paywallId,
        payer,
        rowsOf(short.transfers),
        underpaid(short.received, short.price, network.token),
      )
  }
  await endClaimedSubmissions(ctx, paywallId, payer)
  await foldAccess(ctx, paywallId, payer)
  const unready = new Set(open.filter(transfer => !transfer.ready).map(transfer => transfer.id))
  await setDue(
    ctx,
    looked.filter(id => !unready.has(id)),
    sql`null`,
  )
  await setDue(
    ctx,
    looked.filter(id => unready.has(id)),
    sql`block_time + make_interval(secs => ${UNSUBMITTED_MS / 1_000})`,
  )
}

async function setDue(ctx: Context, ids: readonly bigint[], runAt: RawBuilder<unknown>): Promise<void> {
  if (ids.length > 0) await sql`update transfers set run_at = ${runAt} where id in (${sql.join(ids)})`.execute(ctx.db)
}

/** The due transfers of this sender, and those a payment of his claims, held until the transaction ends. */
async function lockDueTransfers(ctx: Context, paywallId: string, payer: Address): Promise<bigint[]> {
  const rows = await sql<{ id: bigint }>`
    select t.id from transfers t join deposits d on d.id = t.deposit_id
    where d.paywall_id = ${paywallId} and t.run_at is not null and t.state <> 'seen'
      and (t.from_address = ${payer} or exists (select from claims c join payments p on p.id = c.payment_id
        where c.transfer_id = t.id and p.payer = ${payer}))
    order by t.id for update of t`.execute(ctx.db)
  return rows.rows.map(row => row.id)
}

/** Payments that no longer have all their money are undone; their grants are revoked unless the merchant did so before. */
async function reversePayments(ctx: Context, network: Network, paywallId: string, payer: Address): Promise<void> {
  const reversed = await sql<{ id: string }>`
    update payments p set status = 'reversed', updated_at = ${ctx.now()}
    where paywall_id = ${paywallId} and payer = ${payer} and status = 'granted'
      and exists (select from claims c join transfers t on t.id = c.transfer_id where c.payment_id = p.id and t.run_at is not null)
      and amount > (select coalesce(sum(t.value), 0) from claims c join transfers t on t.id = c.transfer_id
        where c.payment_id = p.id and t.state <> 'gone' and t.from_address = p.payer)
    returning id`.execute(ctx.db)
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
    ctx.log.warn({ paymentId: id, paywallId, payer }, "payment reversed: the chain took it back")
    paymentChanges.inc({ network: network.name, change: "reversed" })
  }
}

/** Confirmed transfers in the settlement token that count for no payment, or for one that was reversed. */
async function openTransfers(
  ctx: Context,
  paywallId: string,
  payer: Address,
  network: Network,
): Promise<GroupTransfer[]> {
  const rows = await sql<GroupTransfer>`
    select t.*, p.id as payment_id, p.payer as payment_payer from transfers t
      join deposits d on d.id = t.deposit_id
      left join claims c on c.transfer_id = t.id left join payments p on p.id = c.payment_id
    where d.paywall_id = ${paywallId} and t.from_address = ${payer} and t.token = ${network.token.address}
      and t.state in ('confirmed', 'final') and (p.id is null or p.status = 'reversed')
    order by t.block_number, t.log_index`.execute(ctx.db)
  return rows.rows
}

const versionsOf = async (ctx: Context, paywallId: string): Promise<Version[]> =>
  (await ctx.db.selectFrom("paywall_versions").selectAll().where("paywall_id", "=", paywallId).execute()).map(row => ({
    n: row.n,
    price: row.price,
    active: row.active,
    depositId: row.deposit_id,
    fromAt: row.from_at,
    untilAt: row.until_at,
  }))

/** Claims the transfers and grants: as a new payment, or as the reversed one that they belonged to. */
async function grantPayment(
  ctx: Context,
  paywall: Row<"paywalls">,
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
  if (!revived)
    await ctx.db
      .insertInto("payments")
      .values({ id: paymentId, paywall_id: paywall.id, chain_id: paywall.chain_id, payer, created_at: now, ...facts })
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
  ctx.log.info({ paymentId, paywallId: paywall.id, payer, txHash: last.tx_hash }, "payment granted")
  paymentChanges.inc({ network: networkOf(ctx.chain, paywall.chain_id).name, change: "granted" })
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
