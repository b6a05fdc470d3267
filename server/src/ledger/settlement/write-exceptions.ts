/**
 * Writes open payments: money that pays for nothing. Each sender, token and receiving address gets a separate payment,
 * so that a return can reach only the payer. Open payments follow the chain until the merchant decides.
 */
import { type Insertable, sql } from "kysely"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { remainingValue } from "../../platform/db/remaining-value.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Database, Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { columnsOf } from "../../platform/db/whole-rows.ts"
import { newId } from "../../platform/ids.ts"
import { traceparentNow } from "../../platform/tracing/trace.ts"
import { publicApprovals } from "./find-public-approvals.ts"
import { type Matched, matchOpen } from "./match-open.ts"
import { notifyWaiting } from "./notify-waiting.ts"
import type { ClaimedTransfer, Part, Plan, Sellable, WaitingGroup } from "./sellable.ts"
import { tracePayment } from "./trace-payment.ts"

/**
 * The most open payments at one session, or of one payer at a paywall. The largest come first, and the rest follow once
 * the merchant has decided about these. A flood of dust from a thousand senders must not become a thousand rows to
 * write and read.
 */
const MAX_OPEN = 500

/**
 * Separates transfers by sender, token and receiving address. Minted money has the same sender, no matter who paid it,
 * so each of its transactions is a separate group.
 */
function apart({ exception, transfers }: WaitingGroup): WaitingGroup[] {
  const parts = Map.groupBy(transfers, row => {
    const whose = exception === "no_buyer" ? row.tx_hash : ""
    return `${row.from_address} ${row.token} ${row.deposit_id} ${whose}`
  })
  return [...parts.values()].map(transfers => ({ exception, transfers }))
}

const amountOf = ({ transfers }: WaitingGroup): bigint => transfers.reduce((sum, row) => sum + row.value, 0n)

/**
 * How many newly opened payments of one resource notify the merchant at a time. With a hundred endpoints, 20 take half
 * a second of database time.
 */
const MAX_NOTIFIED = 20

/**
 * Returns the groups with the most money, at most `most`. Groups in other tokens come after those in the settlement
 * token, because their amounts can't be compared.
 */
function greatest(groups: WaitingGroup[], token: Address, most: number): WaitingGroup[] {
  if (groups.length <= most) return groups
  const isOther = ({ transfers }: WaitingGroup) => (transfers[0]?.token === token ? 0 : 1)
  const sums = new Map(groups.map(group => [group, amountOf(group)]))
  const sumOf = (group: WaitingGroup) => sums.get(group) ?? 0n
  return groups
    .toSorted((a, b) => isOther(a) - isOther(b) || (sumOf(a) < sumOf(b) ? 1 : sumOf(a) > sumOf(b) ? -1 : 0))
    .slice(0, most)
}

/**
 * Writes the open payments of a part, one for each group in the plan's `waiting`. A group that was written before keeps
 * its id. Removes open payments' claims on those `considered` transfers that are no longer in `waiting`. Transfers that
 * were not read keep their claims. Call this under the lock of {@link Sellable.hold}.
 */
export async function writeOpen(
  ctx: TxContext,
  sellable: Sellable,
  part: Part,
  { considered, waiting }: Pick<Plan, "considered" | "waiting">,
): Promise<void> {
  const { token } = part.network
  const undecided = await withoutReturning(ctx, waiting)
  const groups = greatest(
    undecided.filter(({ transfers }) => transfers.length > 0).flatMap(apart),
    token.address,
    MAX_OPEN,
  )
  // If a single payment pays for the resource, what is left of a reversed payment is counted with the other transfers.
  const reversed = sellable.paidOnce ? [] : await reversedOf(ctx, groups)
  const present = [...(await openOf(ctx, part)), ...reversed]
  if (present.length === 0 && groups.length === 0) return
  // If a public signature can still send a payment back, the payment stays separate, because that signature sends back
  // only the money of this payment.
  const apartIds = await publicApprovals(
    ctx,
    present.flatMap(row => (row.status === "open" ? row.id : [])),
  )
  const rests = await restsAmong(ctx, present)
  const free = present.filter(row => !apartIds.has(row.id) && !rests.has(row.id))
  const matched = matchOpen(groups, free)
  const waits = new Set(groups.flatMap(({ transfers }) => transfers.map(row => row.id)))
  const presentIds = new Set(present.map(row => row.id))
  await unclaim(
    ctx,
    considered.filter(row => row.payment_id !== null && presentIds.has(row.payment_id) && !waits.has(row.id)),
  )
  const written = await writeAll(ctx, part, matched)
  await refresh(
    ctx,
    present.map(row => row.id),
  )
  const news = await newsAmong(ctx, written)
  const notified = greatest([...news.keys()], token.address, MAX_NOTIFIED)
  await notifyWaiting(
    ctx,
    part.network,
    notified.flatMap(group => news.get(group) ?? []),
  )
}

/**
 * Leaves out transfers of accepted payments that a reorg removed and is bringing back, until all the money of the
 * payment is sure or gone. An open payment would discard the merchant's decision. Once all the money is sure, the
 * payment is granted again. If some of the money is gone, the rest becomes an open payment.
 */
async function withoutReturning(ctx: TxContext, waiting: readonly WaitingGroup[]): Promise<readonly WaitingGroup[]> {
  const reversed = waiting.flatMap(({ transfers }) => transfers.filter(row => row.payment_status === "reversed"))
  if (reversed.length === 0) return waiting
  const ids = sqlArray(
    "text",
    reversed.flatMap(row => row.payment_id ?? []),
  )
  const { rows } = await sql<{ id: string }>`select distinct p.id from payments p join claims c on c.payment_id = p.id
      join transfers t on t.id = c.transfer_id
    where p.id = any(${ids}) and p.accepted_at is not null and t.state <> 'gone'
      and (t.state = 'seen' or t.single_source or t.suspect_at is not null)`.execute(ctx.db)
  const returning = new Set<string | null>(rows.map(row => row.id))
  return waiting.map(({ exception, transfers }) => ({
    exception,
    transfers: transfers.filter(row => !returning.has(row.payment_id)),
  }))
}

/** Returns the payments that are only the rest that was not returned. Such payments receive no other money. */
async function restsAmong(ctx: TxContext, payments: readonly Row<"payments">[]): Promise<Set<string>> {
  if (payments.length === 0) return new Set()
  const ids = sqlArray(
    "text",
    payments.map(row => row.id),
  )
  const { rows } = await sql<{ id: string }>`select distinct payment_id as id from claims
    where payment_id = any(${ids}) and given_back > 0`.execute(ctx.db)
  return new Set(rows.map(({ id }) => id))
}

const openOf = (ctx: TxContext, { owner, payer }: Part) =>
  ctx.db
    .selectFrom("payments")
    .modifyFront(sql.raw(`/* named: open_payments${payer === undefined ? "" : "_of_payer"} */`))
    .select(columnsOf("payments"))
    // A literal, because only then can a cached plan use the index of open payments.
    .where("status", "=", sql.lit("open" as const))
    .where("resource_id", "=", owner.resource_id)
    .$if(payer !== undefined, query => query.where("payer", "=", payer as Address))
    .orderBy("created_at")
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()

/**
 * Locks reversed payments that have some money left. That money stays open under the same payment ids, so that earlier
 * payouts count when these payments are paid again.
 */
async function reversedOf(ctx: TxContext, groups: readonly WaitingGroup[]): Promise<Row<"payments">[]> {
  const ids = groups.flatMap(({ transfers }) =>
    transfers.flatMap(row => (row.payment_status === "reversed" && row.payment_id !== null ? [row.payment_id] : [])),
  )
  if (ids.length === 0) return []
  return await ctx.db
    .selectFrom("payments")
    .selectAll()
    .where(sql<boolean>`id = any(${sqlArray("text", new Set(ids))})`)
    .where("status", "=", "reversed")
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()
}

async function unclaim(ctx: TxContext, transfers: readonly ClaimedTransfer[]): Promise<void> {
  if (transfers.length === 0) return
  const ids = sqlArray(
    "bigint",
    transfers.map(row => row.id),
  )
  await sql`delete from claims c using payments p where c.transfer_id = any(${ids})
    and p.id = c.payment_id and p.status = 'open'`.execute(ctx.db)
}

interface Written extends Matched {
  id: string
}

/**
 * Writes all groups, those with an earlier payment under its id, and claims their transfers, with one statement per
 * table.
 */
async function writeAll(ctx: TxContext, part: Part, matched: readonly Matched[]): Promise<Written[]> {
  const written = matched.map(each => ({ ...each, id: each.known?.id ?? newId("pay") }))
  const made = written.filter(({ known }) => !known)
  const rows: Insertable<Database["payments"]>[] = []
  for (const { id, group } of made) {
    const hashes = group.transfers.map(row => row.tx_hash)
    const traceparent = await tracePayment(ctx, "settle", part, { id: undefined, hashes }, async () =>
      traceparentNow(ctx),
    )
    const times = { created_at: ctx.now(), updated_at: ctx.now() }
    rows.push({ id, ...part.owner, ...factsOf(group), ...times, status: "open", traceparent })
  }
  if (rows.length > 0) await ctx.db.insertInto("payments").values(rows).execute()
  await reopen(ctx, written)
  await claimAll(
    ctx,
    written.flatMap(({ id, group }) =>
      group.transfers.flatMap(row => (row.payment_id === id ? [] : [{ id: row.id, paymentId: id }])),
    ),
  )
  return written
}

/** Returns the columns of the payment for a group. */
function factsOf(group: WaitingGroup) {
  const last = group.transfers.at(-1)
  if (!last) throw new Error("a payment has no transfer")
  const { from_address: payer, token, deposit_id, tx_hash } = last
  return { payer, token, deposit_id, tx_hash, exception: group.exception, amount: amountOf(group) }
}

/** Updates earlier payments whose state, reason or transaction has changed. */
async function reopen(ctx: TxContext, written: readonly Written[]): Promise<void> {
  const rows = written.flatMap(({ id, group, known }) => {
    const { exception, amount, tx_hash, deposit_id } = factsOf(group)
    if (!known || (known.status === "open" && known.exception === exception && known.tx_hash === tx_hash)) return []
    return [{ id, exception, tx_hash, amount: `${amount}`, deposit_id: `${deposit_id}` }]
  })
  if (rows.length === 0) return
  await sql`update payments p set status = 'open', accepted_at = null, updated_at = ${ctx.now()}, exception = now.exception,
      amount = now.amount, tx_hash = now.tx_hash, deposit_id = now.deposit_id
    from (${rowsParameter(rows, "id text, exception text, amount numeric, tx_hash text, deposit_id bigint")}) now
    where p.id = now.id`.execute(ctx.db)
}

/** Returns the groups, with their payment ids, that were not open before or have a new reason or amount. */
async function newsAmong(ctx: TxContext, written: readonly Written[]): Promise<Map<WaitingGroup, string>> {
  const ids = written.flatMap(({ known }) => known?.id ?? [])
  const rows = await ctx.db
    .selectFrom("payments")
    .select(["id", "amount"])
    .where(sql<boolean>`id = any(${sqlArray("text", ids)})`)
    .execute()
  const amounts = new Map(rows.map(({ id, amount }) => [id, amount]))
  // An open payment may claim more transfers than were read, so the amounts that were written are compared.
  const isSame = ({ group, known }: Written) =>
    known?.status === "open" && known.exception === group.exception && known.amount === amounts.get(known.id)
  return new Map(written.filter(each => !isSame(each)).map(({ group, id }) => [group, id]))
}

/**
 * Claims transfers for a payment. Only an open or reversed payment can lose a claim. Throws if a payment in another
 * state claims a transfer, because that transfer would count twice.
 */
export const claim = (
  ctx: TxContext,
  paymentId: string,
  transfers: readonly Pick<Row<"transfers">, "id">[],
): Promise<void> =>
  claimAll(
    ctx,
    transfers.map(({ id }) => ({ id, paymentId })),
  )

/** Claims transfers for several payments, as {@link claim} does for one. */
async function claimAll(ctx: TxContext, claims: readonly { id: bigint; paymentId: string }[]): Promise<void> {
  if (claims.length === 0) return
  const ids = sqlArray(
    "bigint",
    claims.map(({ id }) => id),
  )
  const payments = sqlArray(
    "text",
    claims.map(({ paymentId }) => paymentId),
  )
  const claimed = await sql`
    /* named: claim_transfers */ insert into claims (transfer_id, payment_id) select id, payment_id from unnest(${ids}, ${payments}) as given (id, payment_id)
    on conflict (transfer_id) do update set payment_id = excluded.payment_id
      where claims.payment_id = excluded.payment_id
        or exists (select from payments p where p.id = claims.payment_id and p.status in ('open', 'reversed'))`.execute(
    ctx.db,
  )
  if (claimed.numAffectedRows !== BigInt(claims.length))
    throw new Error("a transfer is already claimed by another payment")
}

/** Removes claims on transfers that are no longer sure, sums the remaining claims, and ends payments without any. */
async function refresh(ctx: TxContext, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return
  const these = sqlArray("text", ids)
  await sql`delete from claims c using transfers t, payments p where t.id = c.transfer_id and p.id = c.payment_id
    and c.payment_id = any(${these}) and p.status = 'open'
    and (t.state not in ('confirmed', 'final') or t.suspect_at is not null or t.from_address <> p.payer)`.execute(
    ctx.db,
  )
  // A payment names one of its own transactions, and the removed claims may include the claim for that transaction.
  await sql`update payments p set amount = held.amount, updated_at = ${ctx.now()},
      tx_hash = case when p.tx_hash = any(held.hashes) then p.tx_hash else held.hashes[1] end from (
      select c.payment_id as id, sum(${remainingValue}) as amount,
        array_agg(t.tx_hash::text order by t.block_number desc, t.log_index desc) as hashes
      from claims c join transfers t on t.id = c.transfer_id where c.payment_id = any(${these}) group by 1) as held
    where held.id = p.id and p.status = 'open' and (p.amount <> held.amount or p.tx_hash <> all(held.hashes))`.execute(
    ctx.db,
  )
  const empty = sql`p.id = any(${these}) and p.status = 'open' and not exists (select from claims c where c.payment_id = p.id)`
  // A payment stays, with the status `reversed`, if the merchant was notified of it, or if it ever had a payout.
  await sql`update payments p set status = 'reversed', updated_at = ${ctx.now()}
    where ${empty} and (p.event_sequence > 0 or exists (select from payouts i where i.payment_id = p.id)
      or exists (select from deliveries d where d.merchant_id = p.merchant_id and d.order_key = p.id))`.execute(ctx.db)
  await sql`delete from payments p where ${empty}`.execute(ctx.db)
}

/** Returns the transactions whose transfers a payment claims. */
export const hashesClaimed = async (ctx: TxContext, paymentId: string): Promise<Hash[]> =>
  (
    await ctx.db
      .selectFrom("claims")
      .innerJoin("transfers", "transfers.id", "claims.transfer_id")
      .select("tx_hash")
      .distinct()
      .where("payment_id", "=", paymentId)
      .execute()
  ).map(row => row.tx_hash)
