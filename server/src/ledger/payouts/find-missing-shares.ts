/**
 * Computes how much of a deposit's money is already promised: by a payment's own payouts, and by payments that held its
 * transfers before a reorg.
 */
import { sql } from "kysely"
import type { Payee } from "../../platform/chain/deposit-terms.ts"
import type { TxContext } from "../../platform/context.ts"
import { withheld } from "../../platform/db/remaining-value.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { allocate } from "../../platform/money/allocate.ts"
import { drawShares } from "./draw-shares.ts"

/** Base units promised to the recipient of a share or, with `share` null, to a payer as a return. */
type Promised = Pick<Row<"payouts">, "share" | "amount">

/**
 * One payment's money at a deposit, and what is promised of that money. `others` is the same for the payments that
 * share the money.
 */
interface PromisedMoney {
  /** In base units. */
  received: bigint
  promised: readonly Promised[]
  others: { received: bigint; promised: readonly Promised[] }
}

const sumOf = (rows: readonly Promised[]) => rows.reduce((sum, row) => sum + row.amount, 0n)
const atLeastZero = (amount: bigint) => (amount > 0n ? amount : 0n)

/** Returns what a deposit's money still owes each share. The amount is negative if too much was promised. */
function owed(recipients: readonly Pick<Payee, "percentE4">[], received: bigint, promised: readonly Promised[]) {
  const returned = sumOf(promised.filter(row => row.share === null))
  const whole = allocate(
    atLeastZero(received - returned),
    recipients.map(each => each.percentE4),
  )
  return whole.map((part, share) => part - sumOf(promised.filter(row => row.share === share)))
}

/**
 * Returns what each share still gets of a payment, in base units. Splits all money of the payment and the others,
 * without the returns; see {@link allocate} for the rounding. If one payment promised a share too much, the share gets
 * less from the next payment. Money that the other payments have not promised yet stays with them. So this payment's
 * shares never get more than its own money covers.
 *
 * @example
 * // An earlier payment had 100, and 70 was signed for share 0. A reorg left it 40, and this payment has the other 60.
 * missingShares([{ percentE4: 700_000 }, { percentE4: 300_000 }], {
 *   received: 60n, promised: [], others: { received: 40n, promised: [{ share: 0, amount: 70n }] },
 * }) // [0n, 30n]
 */
export function missingShares(
  recipients: readonly Pick<Payee, "percentE4">[],
  { received, promised, others }: PromisedMoney,
): bigint[] {
  const left = others.received - sumOf(others.promised)
  const theirs = drawShares(owed(recipients, others.received, others.promised), left)
  const all = [...promised, ...others.promised, ...theirs.map((amount, share) => ({ share, amount }))]
  return drawShares(owed(recipients, received + others.received, all), received - sumOf(promised) - atLeastZero(-left))
}

/**
 * Whether a payout promises money. A share that a person cancelled is not made again, and its money stays in the
 * deposit. A cancelled return leaves its money to the merchant.
 */
export const isLive = ({ share, state, stopped }: Row<"payouts">): boolean =>
  (stopped && share !== null) || (state !== "cancelled" && state !== "reverted")

/**
 * Whether another payment's payout keeps its promise, whatever a reorg did to that payment. A payout without a nonce is
 * cancelled, perhaps in a later transaction, if its payment has lost its money. Otherwise the rest of that payment's
 * money covers the payout.
 */
export const isFirm = (row: Row<"payouts">): boolean => isLive(row) && (row.nonce !== null || row.stopped)

/**
 * Reads the payments' money at a deposit, in base units of a token, and their payouts there. Leaves out a surplus that
 * waits for the merchant.
 */
export async function standingOf(
  ctx: TxContext,
  paymentIds: readonly string[],
  token: Row<"payments">["token"],
  depositId: bigint,
): Promise<{ received: bigint; payouts: Row<"payouts">[] }> {
  if (paymentIds.length === 0) return { received: 0n, payouts: [] }
  const ids = sqlArray("text", paymentIds)
  const { rows } = await sql<{ sum: bigint }>`
    select coalesce(sum(t.value - ${withheld("open")}), 0) as sum from claims c join transfers t on t.id = c.transfer_id
    where c.payment_id = any(${ids}) and t.deposit_id = ${depositId} and t.token = ${token} and t.state <> 'gone'`.execute(
    ctx.db,
  )
  // Reads the payouts of these few payments first. Otherwise, for a busy address, Postgres read all payouts and, for
  // each of them, all transfers (2.6 s with 2,430 payouts, measured).
  const payouts = await sql<
    Row<"payouts">
  >`with made as materialized (select * from payouts where payment_id = any(${ids}))
    select * from made where deposit_id = ${depositId}`.execute(ctx.db)
  return { received: rows[0]?.sum ?? 0n, payouts: payouts.rows }
}

/**
 * Returns the payments that share money with a payment since a reorg. Some of these are earlier payments that held the
 * payment's transfers and were paid out. Others are older payments that now hold other transfers of those earlier
 * payments.
 */
export async function sharersOf(ctx: TxContext, { id, created_at }: Row<"payments">): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    with earlier as materialized (select distinct e.payment_id as id from claims c
        join past_claims e on e.transfer_id = c.transfer_id where c.payment_id = ${id} and e.payment_id <> ${id})
    select id from earlier union
    select p.id from earlier e join past_claims h on h.payment_id = e.id join claims c on c.transfer_id = h.transfer_id
      join payments p on p.id = c.payment_id
    where p.id <> ${id} and (p.created_at, p.id) < (${created_at}, ${id}) order by 1`.execute(ctx.db)
  return rows.map(row => row.id)
}
