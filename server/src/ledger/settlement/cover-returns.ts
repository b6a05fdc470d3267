/**
 * Handles reorgs that change the money of a signed return, which can't be cancelled any more. A payment that lost its
 * money gets what its payer sends next, because the return will send that money back. If a payment has more money than
 * was sent back, the rest waits for the merchant's decision.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { rowsParameter } from "../../platform/db/rows-parameter.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Part } from "./sellable.ts"
import { claim } from "./write-exceptions.ts"

/** How many transfers one settlement takes for a return. With dust, a return takes several rounds. */
const MAX_TAKEN = 2_000
/** The wait before the next check of a payment whose return is not final, or whose money is suspected to be gone. */
const AGAIN_MS = 60_000

/** A payment, with the returns from one deposit that have sent its money back or may still send it back. */
type Returned = Pick<Row<"payments">, "id" | "status" | "payer" | "amount" | "token"> & {
  deposit_id: bigint
  /** The sum of all these returns, in base units. */
  sent: bigint
  /** The sum of the returns that can't be stopped, because they have a nonce or were sent without the service. In base units. */
  signed: bigint
  is_final: boolean
  recipient: Address
  sent_at: Date
}

/** A transfer that such a payment claims, and how much of it no longer counts because that part was given back. */
type Held = Pick<
  Row<"transfers">,
  "id" | "value" | "state" | "suspect_at" | "from_address" | "single_source" | "deposit_id" | "token"
> & { payment_id: string; given_back: bigint }

const heldColumns = sql`t.id, t.value, t.state, t.suspect_at, t.from_address, t.single_source, t.deposit_id, t.token`

const sumOf = (rows: readonly { value: bigint }[]) => rows.reduce((sum, { value }) => sum + value, 0n)

/**
 * Gives returned payments the money that their returns send back. If a payment has a rest once its return is final,
 * opens the payment. Call this under the lock of {@link Sellable.hold}, before the part is planned.
 */
export async function coverReturns(ctx: TxContext, part: Part): Promise<void> {
  const ids = new Set((await uncovered(ctx, part)).map(({ id }) => id))
  if (ids.size === 0) return
  // When a return ends, its payment is opened under this lock, so the payment is read again.
  await sql`select id from payments where id = any(${sqlArray("text", ids)}) order by id for no key update`.execute(
    ctx.db,
  )
  const payments = (await uncovered(ctx, part)).filter(({ id }) => ids.has(id))
  const held = Map.groupBy(await heldBy(ctx, payments), keyOf)
  for (const payment of payments)
    await cover(ctx, payment, held.get(keyOf({ ...payment, payment_id: payment.id })) ?? [])
}

/** Returns a key for a payment's money in one token at one deposit. */
const keyOf = ({ payment_id, deposit_id, token }: Pick<Held, "payment_id" | "deposit_id" | "token">): string =>
  `${payment_id} ${deposit_id} ${token}`

/** Returns how much of these transfers earlier returns have sent back, in base units. */
const givenBack = (held: readonly Held[]): bigint => held.reduce((sum, row) => sum + row.given_back, 0n)

async function cover(ctx: TxContext, payment: Returned, held: readonly Held[]): Promise<void> {
  const standing = held.filter(row => row.suspect_at === null)
  const lacks = payment.signed - sumOf(standing)
  // Money that is only suspected to be gone is not replaced with money that the merchant was shown.
  const taken = lacks > 0n ? await takeFree(ctx, payment, lacks, payment.signed > sumOf(held)) : []
  if (payment.status !== "returned") {
    if (taken.length === 0 && !isOnItsWayBack(payment, held)) return
    await writeReturned(ctx, payment)
  }
  const now = ctx.now()
  const spare = spareOf(standing, sumOf(standing) - payment.sent)
  await release(ctx, payment, spare)
  await settleAt(ctx, spare, now)
  const isSpare = new Set(spare)
  const kept = [...held.filter(row => !isSpare.has(row)), ...taken]
  if (sumOf(kept) === payment.sent && payment.status === "returned")
    return await fit(ctx, payment, payment.sent - givenBack(kept))
  if (sumOf(kept) <= payment.sent) return
  if (payment.is_final && kept.every(row => isSureOf(payment, row))) await openRest(ctx, payment, kept)
  else await settleAt(ctx, kept, new Date(now.getTime() + AGAIN_MS))
}

/**
 * Sets a returned payment's amount to what was sent back. If the merchant gave back only a part, the other transfers
 * now count separately.
 */
async function fit(ctx: TxContext, { id, amount }: Returned, back: bigint): Promise<void> {
  if (amount === back) return
  await sql`update payments p set amount = ${back}, updated_at = ${ctx.now()},
      tx_hash = case when p.tx_hash = any(held.hashes) then p.tx_hash else held.hashes[1] end
    from (select array_agg(t.tx_hash::text order by t.block_number desc, t.log_index desc) as hashes
      from claims c join transfers t on t.id = c.transfer_id where c.payment_id = ${id} and t.state <> 'gone') held
    where p.id = ${id}`.execute(ctx.db)
}

async function settleAt(ctx: TxContext, transfers: readonly Held[], at: Date): Promise<void> {
  const ids = sqlArray(
    "bigint",
    transfers.map(row => row.id),
  )
  if (transfers.length > 0) await sql`update transfers set run_at = ${at} where id = any(${ids})`.execute(ctx.db)
}

/**
 * Reads those payments of the part whose signed returns count but differ from the money that the payments hold. The
 * payments are in the order of their ids.
 */
async function uncovered(ctx: TxContext, { owner, payer }: Part): Promise<Returned[]> {
  const ofPart = sql`from payments where resource_id = ${owner.resource_id}
    ${payer === undefined ? sql`` : sql`and payer = ${payer}`}`
  const name = sql.raw(payer === undefined ? "returns_at_resource" : "returns_to_payer")
  // Each half of the union has its own index, so the granted payments of a frequent payer are not read.
  const { rows } = await sql<Returned>`
    /* named: ${name} */ select p.id, p.status, p.payer, p.amount, sent.*
    from (select * ${ofPart} and status = 'returned' union all select * ${ofPart} and status in ('open', 'reversed')) p
    cross join lateral (
      select i.deposit_id, i.token, sum(i.amount - coalesce(i.excess, 0)) as sent,
        sum(i.amount - coalesce(i.excess, 0)) filter (where i.state not in ('queued', 'held')) as signed,
        bool_and(i.state = 'final') as is_final,
        (array_agg(i.recipient::text order by i.created_at desc))[1] as recipient, max(i.created_at) as sent_at
      from payouts i where i.payment_id = p.id and i.kind = 'return'
        and (i.state in ('queued', 'held', 'assigned') or (i.state in ('mined', 'final') and i.succeeded))
      group by 1, 2 having bool_or(i.state not in ('queued', 'held'))) sent
    cross join lateral (
      select coalesce(sum(t.value), 0) as there, coalesce(sum(c.given_back), 0) as given_back,
        coalesce(bool_or(t.suspect_at is not null), false) as is_suspect
      from claims c join transfers t on t.id = c.transfer_id
      where c.payment_id = p.id and t.state <> 'gone' and t.deposit_id = sent.deposit_id and t.token = sent.token) held
    where not (p.status = 'returned' and p.amount = sent.sent - held.given_back and held.there = sent.sent
      and not held.is_suspect)
    order by p.id`.execute(ctx.db)
  return rows
}

/** Reads the transfers that these payments claim, in chain order, without those that are gone. */
async function heldBy(ctx: TxContext, payments: readonly Returned[]): Promise<Held[]> {
  if (payments.length === 0) return []
  const ids = sqlArray(
    "text",
    payments.map(({ id }) => id),
  )
  const { rows } = await sql<Held>`
    select ${heldColumns}, c.payment_id, c.given_back from claims c join transfers t on t.id = c.transfer_id
    where c.payment_id = any(${ids}) and t.state <> 'gone' order by t.block_number, t.log_index`.execute(ctx.db)
  return rows
}

/**
 * Whether the return sends back everything that a reorg left in the payment. Such a payment had a returned surplus or
 * an open rest.
 */
function isOnItsWayBack({ status, signed, amount }: Returned, held: readonly Held[]): boolean {
  const there = sumOf(held)
  const counts = there - givenBack(held)
  return there > 0n && (status === "open" ? there <= signed : counts < amount)
}

const isSureOf = ({ payer }: Returned, { state, suspect_at, from_address, single_source }: Held): boolean =>
  state !== "seen" && suspect_at === null && from_address === payer && !single_source

/**
 * Claims other money of the payer until the payment has what it lacks: unclaimed transfers and, with `alsoOpen`, also
 * open payments. From a flood of transfers, the largest are claimed. Any transfer that is left over buys something, so
 * if dust were claimed first, the money of a signed return would be spent twice.
 */
async function takeFree(
  ctx: TxContext,
  { id, payer, deposit_id, token }: Returned,
  lacks: bigint,
  alsoOpen: boolean,
): Promise<Held[]> {
  const { rows } = await sql<Held>`
    select * from (select free.*, coalesce(sum(value) over (order by block_number, log_index
      rows between unbounded preceding and 1 preceding), 0) as before
    from (select ${heldColumns}, t.block_number, t.log_index, ${id} as payment_id, 0::numeric(78,0) as given_back
    from transfers t left join claims c on c.transfer_id = t.id
      left join payments p on p.id = c.payment_id
    where t.deposit_id = ${deposit_id} and t.token = ${token} and t.from_address = ${payer} and not t.applied
      and t.state in ('confirmed', 'final') and t.suspect_at is null and not t.single_source
      and (c.payment_id is null or (${alsoOpen} and p.status = 'open' and p.id <> ${id} and c.given_back = 0))
    order by t.value desc, t.id limit ${MAX_TAKEN}) free) taken where before < ${lacks}
    order by block_number, log_index`.execute(ctx.db)
  await claim(ctx, id, rows)
  if (rows.length > 0)
    ctx.log.warn(
      { paymentId: id, transfers: rows.length },
      "a signed return is paid from money that its payer sent later",
    )
  return rows
}

/** Returns the last of these transfers that together hold at most `spare` base units. */
function spareOf(held: readonly Held[], spare: bigint): Held[] {
  let left = spare
  return held.toReversed().filter(({ value }) => {
    if (value > left) return false
    left -= value
    return true
  })
}

/** Releases transfers that a returned payment no longer needs, so that they count like any other money. */
async function release(ctx: TxContext, { id }: Returned, spare: readonly Held[]): Promise<void> {
  if (spare.length === 0) return
  const ids = sqlArray(
    "bigint",
    spare.map(row => row.id),
  )
  await sql`delete from claims where payment_id = ${id} and transfer_id = any(${ids})`.execute(ctx.db)
  // None of this money was sent back, but shares of it may have been paid out.
  await sql`delete from past_claims where payment_id = ${id} and transfer_id = any(${ids})
    and not exists (select from payouts where payment_id = ${id} and kind = 'share' and state not in ('cancelled', 'reverted'))`.execute(
    ctx.db,
  )
}

/** Makes a payment returned, because a reorg left it no more money than its return sends back. */
async function writeReturned(ctx: TxContext, payment: Returned): Promise<void> {
  const { id, deposit_id, signed, recipient, sent_at } = payment
  await sql`update claims set given_back = 0 where payment_id = ${id} and given_back > 0`.execute(ctx.db)
  await ctx.db.deleteFrom("surpluses").where("payment_id", "=", id).execute()
  const returned = {
    status: "returned" as const,
    returned_at: sent_at,
    returned_to: recipient,
    amount: signed,
    deposit_id,
  }
  await ctx.db
    .updateTable("payments")
    .set({ ...returned, exception: sql`coalesce(exception, 'overpaid')`, accepted_at: null, updated_at: ctx.now() })
    .where("id", "=", id)
    .execute()
  ctx.log.warn(
    { paymentId: id },
    "a reorg left a payment no more money than its signed return sends back; the payment is now returned",
  )
}

/** Reopens a returned payment for the money that exceeds its final return. */
async function openRest(ctx: TxContext, { id, sent, deposit_id }: Returned, held: readonly Held[]): Promise<void> {
  let left = sent
  const given = held.map(({ id, value }) => {
    const back = value < left ? value : left
    left -= back
    return { id: `${id}`, back: `${back}` }
  })
  await sql`update claims c set given_back = given.back from (${rowsParameter(given, "id bigint, back numeric")}) given
    where c.transfer_id = given.id`.execute(ctx.db)
  const open = { status: "open" as const, returned_at: null, returned_to: null, accepted_at: null, deposit_id }
  const amount = sumOf(held) - sent
  await ctx.db
    .updateTable("payments")
    .set({ ...open, amount, updated_at: ctx.now() })
    .where("id", "=", id)
    .execute()
  ctx.log.warn({ paymentId: id, amount: `${amount}` }, "a returned payment has more money than was sent back")
}
