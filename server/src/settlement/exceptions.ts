/**
 * Payments that wait for the merchant: money that fits nothing, by sender, token and receiving address, so that a return
 * can reach nobody but its payer. They follow what the chain brings until the merchant decides.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { newId } from "../ids.ts"
import { traceparentNow } from "../tracing/trace.ts"
import { notifyWaiting } from "./notify-waiting.ts"
import { publicApprovals } from "./public-approval.ts"
import type { ClaimedTransfer, Part, Plan, Sellable, Waiting } from "./sellable.ts"
import { tracePayment } from "./trace-payment.ts"

/**
 * Payments that wait at one session, or of one payer at a paywall: those of most money, and the others as these are decided.
 * A flood of dust from a thousand senders must not be a thousand rows to write, and to read.
 */
const MOST_OPEN = 500

/** Transfers apart by sender, token and receiving address. */
function apart({ exception, transfers }: Waiting): Waiting[] {
  const parts = Map.groupBy(transfers, row => `${row.from_address} ${row.token} ${row.deposit_id}`)
  return [...parts.values()].map(transfers => ({ exception, transfers }))
}

const amountOf = ({ transfers }: Waiting): bigint => transfers.reduce((sum, row) => sum + row.value, 0n)

/** Of what begins to wait at one thing at once, so many are notified: with a hundred endpoints it is half a second of the database. */
const MOST_NOTIFIED = 20

/** Those of most money, where there are more than `most`; other tokens, whose amounts say nothing, after the settlement token. */
function greatest(groups: Waiting[], token: Address, most: number): Waiting[] {
  if (groups.length <= most) return groups
  const isOther = ({ transfers }: Waiting) => (transfers[0]?.token === token ? 0 : 1)
  const sums = new Map(groups.map(group => [group, amountOf(group)]))
  const sumOf = (group: Waiting) => sums.get(group) ?? 0n
  return groups
    .toSorted((a, b) => isOther(a) - isOther(b) || (sumOf(a) < sumOf(b) ? 1 : sumOf(a) > sumOf(b) ? -1 : 0))
    .slice(0, most)
}

/**
 * Writes a part's payments that wait: one for each of the plan's `waiting`, under the id that it had before where there is one.
 * Of `looked` whatever waits no more is let go; transfers that were not looked at stay where they are. Call it under the lock
 * of {@link Sellable.hold}.
 */
export async function writeOpen(
  ctx: TxContext,
  sellable: Sellable,
  part: Part,
  { looked, waiting }: Pick<Plan, "looked" | "waiting">,
): Promise<void> {
  const { token } = part.network
  const undecided = await withoutReturning(ctx, waiting)
  const groups = greatest(
    undecided.filter(({ transfers }) => transfers.length > 0).flatMap(apart),
    token.address,
    MOST_OPEN,
  )
  // Where one payment is all, what is left of a reversed one is counted with the rest.
  const reversed = sellable.paidOnce ? [] : await reversedOf(ctx, groups)
  const present = [...(await openOf(ctx, part)), ...reversed]
  if (present.length === 0 && groups.length === 0) return
  // What can still be sent back by a public signature stays apart: only what it brought would go back.
  const apartIds = await publicApprovals(
    ctx,
    present.flatMap(row => (row.status === "open" ? row.id : [])),
  )
  const left = new Set(present.filter(row => !apartIds.has(row.id)))
  const idOf = (exact: boolean, { exception, transfers }: Waiting) => {
    const [first] = transfers
    const known = [...left].find(
      row =>
        row.payer === first?.from_address &&
        row.token === first.token &&
        (row.status === "reversed"
          ? exact && transfers.some(each => each.payment_id === row.id)
          : row.deposit_id === first.deposit_id && (!exact || row.exception === exception)),
    )
    if (known) left.delete(known)
    return known
  }
  const exact = groups.map(group => ({ group, known: idOf(true, group) }))
  const matched = exact.map(({ group, known }) => ({ group, known: known ?? idOf(false, group) }))
  const waits = new Set(groups.flatMap(({ transfers }) => transfers.map(row => row.id)))
  const isOpen = new Set(present.map(row => row.id))
  await unclaim(
    ctx,
    looked.filter(row => row.payment_id !== null && isOpen.has(row.payment_id) && !waits.has(row.id)),
  )
  const news = new Map<Waiting, string>()
  for (const { group, known } of matched) {
    const { id, isNews } = await writeOne(ctx, part, group, known)
    if (isNews) news.set(group, id)
  }
  await refresh(
    ctx,
    present.map(row => row.id),
  )
  const notified = greatest([...news.keys()], token.address, MOST_NOTIFIED)
  await notifyWaiting(
    ctx,
    part.network,
    notified.flatMap(group => news.get(group) ?? []),
  )
}

/**
 * Leaves out the transfers of accepted payments that a reorg removed and is bringing back, while some of their money is
 * unconfirmed, suspected or reported by one endpoint alone: listed again they would lose what the merchant decided. When all of it is sure
 * they are granted again; when it is gone, what is left is listed.
 */
async function withoutReturning(ctx: TxContext, waiting: readonly Waiting[]): Promise<readonly Waiting[]> {
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

const openOf = (ctx: TxContext, { owner, payer }: Part) =>
  ctx.db
    .selectFrom("payments")
    .selectAll()
    .where("status", "=", "open")
    .where("resource_id", "=", owner.resource_id)
    .$if(payer !== undefined, query => query.where("payer", "=", payer as Address))
    .orderBy("created_at")
    .orderBy("id")
    .forNoKeyUpdate()
    .execute()

/**
 * Payments that were reversed and have something left, which waits under their ids: what was already promised of
 * them counts when they are paid again.
 */
async function reversedOf(ctx: TxContext, groups: readonly Waiting[]): Promise<Row<"payments">[]> {
  const ids = groups.flatMap(({ transfers }) =>
    transfers.flatMap(row => (row.payment_status === "reversed" && row.payment_id !== null ? [row.payment_id] : [])),
  )
  if (ids.length === 0) return []
  return await ctx.db
    .selectFrom("payments")
    .selectAll()
    .where("id", "in", [...new Set(ids)])
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

/** Answers the payment's id, and whether it did not wait so before: for another reason, with another amount, or not at all. */
async function writeOne(
  ctx: TxContext,
  part: Part,
  { exception, transfers }: Waiting,
  known: Row<"payments"> | undefined,
): Promise<{ id: string; isNews: boolean }> {
  const last = transfers.at(-1)
  if (!last) throw new Error("a payment has no transfer")
  const id = known?.id ?? newId("pay")
  const facts = {
    amount: amountOf({ exception, transfers }),
    tx_hash: last.tx_hash,
    exception,
    updated_at: ctx.now(),
  }
  const whose = { payer: last.from_address, token: last.token, deposit_id: last.deposit_id }
  if (!known) {
    const hashes = transfers.map(row => row.tx_hash)
    const traceparent = await tracePayment(ctx, "settle", part, { id: undefined, hashes }, async () =>
      traceparentNow(ctx),
    )
    await ctx.db
      .insertInto("payments")
      .values({ id, ...part.owner, ...whose, ...facts, status: "open", created_at: ctx.now(), traceparent })
      .execute()
  } else if (known.status !== "open" || known.exception !== exception || known.tx_hash !== last.tx_hash)
    await ctx.db
      .updateTable("payments")
      .set({ ...facts, status: "open", deposit_id: last.deposit_id, accepted_at: null })
      .where("id", "=", id)
      .execute()
  await claim(
    ctx,
    id,
    transfers.filter(row => row.payment_id !== id),
  )
  const isSame = known?.status === "open" && known.exception === exception && known.amount === facts.amount
  return { id, isNews: !isSame }
}

/**
 * Claims transfers for a payment. A claim moves only away from a payment that waits or was reversed: whatever else stands
 * there already would be a transfer counted twice, and throws.
 */
export async function claim(
  ctx: TxContext,
  paymentId: string,
  transfers: readonly Pick<Row<"transfers">, "id">[],
): Promise<void> {
  if (transfers.length === 0) return
  const ids = sqlArray(
    "bigint",
    transfers.map(each => each.id),
  )
  const claimed = await sql`
    insert into claims (transfer_id, payment_id) select id, ${paymentId} from unnest(${ids}) as id
    on conflict (transfer_id) do update set payment_id = excluded.payment_id
      where claims.payment_id = excluded.payment_id
        or exists (select from payments p where p.id = claims.payment_id and p.status in ('open', 'reversed'))`.execute(
    ctx.db,
  )
  if (claimed.numAffectedRows !== BigInt(transfers.length))
    throw new Error("a transfer is already claimed by another payment")
}

/** Lets go of what is no longer sure, counts what is left, and ends the payments that have nothing any more. */
async function refresh(ctx: TxContext, ids: readonly string[]): Promise<void> {
  if (ids.length === 0) return
  const these = sql.join(ids)
  await sql`delete from claims c using transfers t, payments p where t.id = c.transfer_id and p.id = c.payment_id
    and c.payment_id in (${these}) and p.status = 'open'
    and (t.state not in ('confirmed', 'final') or t.suspect_at is not null or t.from_address <> p.payer)`.execute(
    ctx.db,
  )
  // Named by a transaction of its own: the last one may be what was let go.
  await sql`update payments p set amount = held.amount, updated_at = ${ctx.now()},
      tx_hash = case when p.tx_hash = any(held.hashes) then p.tx_hash else held.hashes[1] end from (
      select c.payment_id as id, sum(t.value) as amount,
        array_agg(t.tx_hash::text order by t.block_number desc, t.log_index desc) as hashes
      from claims c join transfers t on t.id = c.transfer_id where c.payment_id in (${these}) group by 1) as held
    where held.id = p.id and p.status = 'open' and (p.amount <> held.amount or p.tx_hash <> all(held.hashes))`.execute(
    ctx.db,
  )
  const empty = sql`p.id in (${these}) and p.status = 'open' and not exists (select from claims c where c.payment_id = p.id)`
  // One that the merchant was notified of, or that a payout was once made for, is remembered with what it bought.
  await sql`update payments p set status = 'reversed', updated_at = ${ctx.now()}
    where ${empty} and (p.event_sequence > 0 or exists (select from payouts i where i.payment_id = p.id))`.execute(
    ctx.db,
  )
  await sql`delete from payments p where ${empty}`.execute(ctx.db)
}

/** The transactions whose transfers a payment claims. */
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
