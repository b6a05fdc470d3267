/**
 * The merchant's decision about open money, either a payment or the surplus of a granted one: to accept it or to return
 * it, once. Both decisions take the lock under which the money is settled. So one of two concurrent decisions wins, and
 * no settlement round runs in between.
 */
import { sql } from "kysely"
import { refusalsOf } from "../../account/identity/refuse-addresses.ts"
import { type Address, checksummed } from "../../platform/chain/hex.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import type { TxContext } from "../../platform/context.ts"
import { remainingValue } from "../../platform/db/remaining-value.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, invalid } from "../../platform/errors.ts"
import { countPayment } from "../../platform/metrics.ts"
import { depositSums } from "../deposits/sum-deposits.ts"
import { makePayouts } from "../payouts/make-payouts.ts"
import { makeReturn } from "../payouts/make-returns.ts"
import { assertApproved, type CheckedApproval } from "./check-return-approval.ts"
import { publicApprovals } from "./find-public-approvals.ts"
import { holdSurplus, surplusAlone, surplusStands } from "./hold-surplus.ts"
import { namedAddress } from "./name-return-address.ts"
import type { SellingContext, SellingTx } from "./sellable.ts"
import { type Part, type Screened, type Sellable, sellableOf } from "./sellable.ts"
import { grantAccepted } from "./write-payments.ts"

/** Returns a payment of this merchant. Throws `NOT_FOUND` for any other payment. */
export async function paymentOf(ctx: TxContext, merchantId: string, id: string): Promise<Row<"payments">> {
  const payment = await ctx.db
    .selectFrom("payments")
    .selectAll()
    .where("id", "=", id)
    .where("merchant_id", "=", merchantId)
    .executeTakeFirst()
  if (!payment) throw new ApiError("NOT_FOUND")
  return payment
}

/**
 * Screens everyone involved in a decision, before its transaction. Throws `SANCTIONS_MATCH` if the payer or `recipient`
 * is listed, and `CHAIN_UNAVAILABLE` if this can't be determined.
 */
export async function screenDecision(
  ctx: SellingContext,
  payment: Row<"payments">,
  recipient: Address | undefined,
): Promise<Screened> {
  const { senders: others } = await sellableOf(ctx, payment.resource_id).groupOf(ctx, payment)
  const concerned = [payment.payer, ...(recipient ? [recipient] : [])]
  const screened = await screen(ctx, [...new Set([...concerned, ...others])], `decide:${payment.id}`)
  if (concerned.some(address => screened.get(address) === "listed")) throw new ApiError("SANCTIONS_MATCH")
  if (concerned.some(address => screened.get(address) !== "clear"))
    throw new ApiError(
      "CHAIN_UNAVAILABLE",
      undefined,
      "The network can't be reached, so the payer can't be screened against the sanctions list. Try again in a moment.",
    )
  return screened
}

/**
 * Accepts an open payment or surplus as paid, and pays out what was received. The payment buys what was for sale, or is
 * extra money if another payment bought it. A surplus buys nothing more. Call this inside a transaction. Throws
 * `INVALID_OPERATION` unless the payment or surplus is open.
 */
export async function acceptPayment(ctx: SellingTx, merchantId: string, id: string, screened: Screened): Promise<void> {
  const { sellable, part, payment, surplus } = await lockOpen(ctx, merchantId, id)
  await assertNoApprovalLeft(ctx, payment)
  if (surplus) {
    await ctx.db.updateTable("surpluses").set({ state: "accepted" }).where("payment_id", "=", id).execute()
    await makePayouts(ctx, id)
  } else {
    await grantAccepted(ctx, sellable, part, payment)
    await sellable.onDecided(ctx, part, { ...payment, status: "granted" }, screened)
  }
  ctx.log.info({ paymentId: id, exception: payment.exception }, "payment accepted by the merchant")
}

/**
 * Throws `INVALID_OPERATION` while anyone can still send the payment back with a signature of the merchant's wallet.
 */
async function assertNoApprovalLeft(ctx: TxContext, { id }: Row<"payments">): Promise<void> {
  const until = (await publicApprovals(ctx, [id])).get(id)
  if (until === undefined) return
  throw new ApiError(
    "INVALID_OPERATION",
    undefined,
    `Your wallet has signed a return of this payment, and the signature is public: until ${until.toISOString()} anyone can execute it. Return the payment, or accept it after that time.`,
  )
}

const PAID_OUT =
  "This payment was paid out before a reorg reversed a part of it, so it can't be returned from here. Accept it, or wait until its payouts have failed."

const RECOVERED =
  "This payment's money is no longer at its receiving address. If it went to the address's owner after the recovery time (your payout address at that time), send it back from there. If your wallet sent it back with its own signature, there is nothing to do."

/**
 * Whether so much money left the payment's address without a payout that the remaining money does not cover the
 * payment.
 */
async function isRecovered(
  ctx: TxContext,
  { deposit_id, token, amount }: Pick<Row<"payments">, "deposit_id" | "token" | "amount">,
): Promise<boolean> {
  if (deposit_id === null) return false
  const recovered = await ctx.db
    .selectFrom("outflows")
    .select("id")
    .where("deposit_id", "=", deposit_id)
    .where("token", "=", token)
    .limit(1)
    .executeTakeFirst()
  if (!recovered) return false
  const sums = (await depositSums(ctx, token, [deposit_id])).get(deposit_id)
  return sums !== undefined && sums.came - sums.went < amount
}

/** The address to which the merchant returns a payment. Undefined means the address that the payer named. */
export interface ReturnTo {
  address: Address | undefined
  /** Whether the merchant confirmed that the money goes to this address although the payer named another one. */
  confirm: boolean
  /** The approval of the wallet that the receiving address names, if it names one. */
  approval?: CheckedApproval | undefined
}

/**
 * Sends an open payment or surplus back with one payout. Without an address, the money goes to the address that the
 * payer named by signature. The money never goes back to its sender by default, because the sender may be an exchange.
 * Call this inside a transaction. Throws `INVALID_OPERATION` if the payment is not open or its payer named another
 * address. Throws `VALIDATION_ERROR` for an address that must not receive money, and `RETURN_APPROVAL_REQUIRED` if a
 * wallet has to approve the return.
 */
export async function returnPayment(
  ctx: SellingTx,
  merchantId: string,
  id: string,
  to: ReturnTo,
  screened: Screened,
): Promise<void> {
  const open = await lockOpen(ctx, merchantId, id)
  const { payment, surplus } = open
  // A surplus is never part of the payouts of its payment.
  if (!surplus && (await isPaidOut(ctx, id))) throw new ApiError("INVALID_OPERATION", undefined, PAID_OUT)
  if (await isRecovered(ctx, surplus ?? payment)) throw new ApiError("INVALID_OPERATION", undefined, RECOVERED)
  const named = (await namedAddress(ctx, payment))?.address
  const address = to.address ?? named
  if (!address)
    throw invalid(
      "address",
      "is required, because the payer named no address and the sender may be an exchange's wallet",
    )
  if (named && named !== address && !to.confirm)
    throw new ApiError(
      "INVALID_OPERATION",
      undefined,
      `The payer named ${checksummed(named)} with a signature. To send the money to another address anyway, set \`confirm: true\`.`,
    )
  const refusal =
    address === payment.token ? "is a token contract: use a wallet" : (await refusalsOf(ctx, [address])).get(address)
  if (refusal) throw invalid("address", refusal)
  // The payer may have named this address after the screening.
  if (screened.get(address) !== "clear") throw busy("The payer has just named another address.")
  const back = surplus ? surplusAlone(payment, surplus) : payment
  await assertApproved(ctx, back, address, to.approval)
  const { approval } = to
  await writeReturned(ctx, open, address, screened, payment => makeReturn(ctx, payment, { approval }))
}

/**
 * Writes that a payment, or its surplus, goes back to an address. `send` writes the payout. Call this in the
 * transaction that called {@link lockOpen}.
 */
export async function writeReturned(
  ctx: SellingTx,
  { sellable, part, payment, surplus }: Open,
  to: Address,
  screened: Screened,
  send: (payment: Row<"payments">) => Promise<void>,
): Promise<void> {
  const sent = { returned_at: ctx.now(), returned_to: to }
  if (surplus) {
    const returned = { state: "returned" as const, ...sent }
    await ctx.db.updateTable("surpluses").set(returned).where("payment_id", "=", payment.id).execute()
    await send(payment)
    // The next round updates what the resource says about the payment.
    await sellable.wake?.(ctx, [], [payment.resource_id])
  } else {
    const returned = { status: "returned" as const, ...sent }
    await ctx.db
      .updateTable("payments")
      .set({ ...returned, updated_at: ctx.now() })
      .where("id", "=", payment.id)
      .execute()
    await send({ ...payment, ...returned })
    await sellable.onDecided(ctx, part, { ...payment, ...returned }, screened)
  }
  const { id, exception, token } = payment
  ctx.log.info({ paymentId: id, exception }, "payment returned by the merchant")
  const amount = surplus ? surplus.amount : payment.amount
  ctx.onCommit(() => countPayment(part.network, part.owner.resource_id, "returned", { token, amount }))
}

/** An open payment with its part, or a granted payment with an open surplus. */
interface Open {
  sellable: Sellable
  part: Part
  payment: Row<"payments">
  surplus: Row<"surpluses"> | undefined
}

/**
 * Locks the payment and the rows that its settlement locks. Throws `INVALID_OPERATION` unless the payment is open and
 * all its money is confirmed.
 */
export async function lockOpen(ctx: SellingTx, merchantId: string, id: string): Promise<Open> {
  const known = await paymentOf(ctx, merchantId, id)
  const resourceId = known.resource_id
  const sellable = sellableOf(ctx, resourceId)
  const { parts } = await sellable.hold(ctx, { resourceId, senders: [known.payer] })
  const [part] = parts
  if (!part) throw new Error(`${resourceId} has no part that ${id} could wait in`)
  await ctx.db.selectFrom("payments").select("id").where("id", "=", id).forNoKeyUpdate().execute()
  const payment = await paymentOf(ctx, merchantId, id)
  if (payment.status !== "open") {
    const surplus = await holdSurplus(ctx, id)
    if (payment.status !== "granted" || surplus?.state !== "open")
      throw new ApiError("INVALID_OPERATION", undefined, stateOf(payment, surplus))
    if (!(await surplusStands(ctx, id))) throw busy(MOVING)
    return { sellable, part, payment, surplus }
  }
  const stands = await sql`select from claims c join transfers t on t.id = c.transfer_id where c.payment_id = ${id}
    having sum(${remainingValue}) = ${payment.amount} and bool_and(t.state in ('confirmed', 'final') and t.suspect_at is null
      and t.from_address = ${payment.payer} and t.token = ${payment.token} and t.deposit_id = ${payment.deposit_id})`.execute(
    ctx.db,
  )
  if (stands.rows.length === 0) throw busy(MOVING)
  return { sellable, part, payment, surplus: undefined }
}

const MOVING = "A reorg is moving this payment to another block."
const busy = (why: string) => new ApiError("INVALID_OPERATION", undefined, `${why} Try again in a minute.`)

function stateOf(
  { status, returned_to, accepted_at, exception }: Row<"payments">,
  surplus: Row<"surpluses"> | undefined,
): string {
  if (status === "granted" && surplus?.returned_to)
    return `This payment is granted, and its surplus has already been returned, to ${checksummed(surplus.returned_to)}.`
  if (status === "granted" && surplus) return "This payment is granted, and its surplus has already been accepted."
  if (status === "returned")
    return `This payment has already been returned${returned_to ? `, to ${checksummed(returned_to)}` : ""}.`
  if (status === "reversed") return "This payment is reversed: a reorg removed its transfer."
  if (accepted_at) return `This payment is granted: it was accepted at ${accepted_at.toISOString()}.`
  if (exception === "overpaid")
    return "This payment is granted including the amount above the price: no part of it waits for a decision."
  return "This payment is granted: no part of it waits for a decision."
}

/**
 * Whether the payment's money was, or is about to be, paid out before a reorg removed part of it. A return would then
 * use other payers' money. The payout may belong to another payment that had the same transfers.
 */
export async function isPaidOut(ctx: TxContext, id: string): Promise<boolean> {
  const { rows } = await sql`
    select from payouts where payment_id = ${id} and state not in ('cancelled', 'reverted') and (kind = 'share'
      or (kind = 'return' and not exists (select from claims where payment_id = ${id} and given_back > 0)))
    union all
    select from claims c join past_claims e on e.transfer_id = c.transfer_id join transfers t on t.id = c.transfer_id
        join payouts i on i.payment_id = e.payment_id and i.deposit_id = t.deposit_id and i.token = t.token
      where c.payment_id = ${id} and i.state not in ('cancelled', 'reverted')
        and not (i.kind = 'return' and c.given_back > 0)
    union all
    select from claims c join sweep_parts s on s.transfer_id = c.transfer_id join payouts i on i.id = s.payout_id
      where c.payment_id = ${id} and i.state not in ('cancelled', 'reverted')
    limit 1`.execute(ctx.db)
  return rows.length > 0
}
