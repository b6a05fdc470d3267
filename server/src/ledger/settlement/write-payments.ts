/** Writes a payment when it is paid, paid again or reversed, with its payouts and what it buys. */
import { sql } from "kysely"
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { newId } from "../../platform/ids.ts"
import { countPayment } from "../../platform/metrics.ts"
import { traceparentNow } from "../../platform/tracing/trace.ts"
import { cancelPayouts, makePayouts } from "../payouts/make-payouts.ts"
import { dropSurplus, writeSurplus } from "./hold-surplus.ts"
import { notifyWaiting } from "./notify-waiting.ts"
import type { Paid, Part, Sellable, SellingTx } from "./sellable.ts"
import { tracePayment } from "./trace-payment.ts"
import { claim, hashesClaimed } from "./write-exceptions.ts"

/**
 * Claims the transfers and grants the payment, as a new one or as `known`, which was open, reversed or already paid.
 * Returns the payment's id.
 */
export const writePaid = (ctx: SellingTx, sellable: Sellable, part: Part, paid: Paid): Promise<string> =>
  tracePayment(ctx, "settle", part, { id: paid.known, hashes: paid.transfers.map(hashOf) }, () =>
    writeGranted(ctx, sellable, part, paid),
  )

async function writeGranted(ctx: SellingTx, sellable: Sellable, part: Part, paid: Paid): Promise<string> {
  const { transfers, known, price } = paid
  const last = transfers.at(-1)
  if (!last) throw new Error("a payment has no transfer")
  const id = known ?? newId("pay")
  const amount = transfers.reduce((total, transfer) => total + transfer.value, 0n)
  const rows = ctx.db.selectFrom("payments").select(["status", "amount"])
  const before = known === undefined ? undefined : await rows.where("id", "=", known).executeTakeFirstOrThrow()
  // Unsigned sweeps, shares and returns of a surplus would send money that the payment no longer has.
  if (
    known !== undefined &&
    before?.status === "granted" &&
    (before.amount !== amount || (await losesSome(ctx, known, transfers)))
  )
    await cancelPayouts(ctx, known)
  const facts = {
    payer: last.from_address,
    token: last.token,
    amount,
    tx_hash: last.tx_hash,
    status: "granted" as const,
    exception: amount > price ? ("overpaid" as const) : null,
    deposit_id: null,
    accepted_at: null,
    updated_at: ctx.now(),
  }
  if (known === undefined) {
    await ctx.db
      .insertInto("payments")
      .values({ id, ...part.owner, ...facts, created_at: ctx.now(), traceparent: traceparentNow(ctx) })
      .modifyEnd(sql`/* named: insert_payment */`)
      .execute()
  }
  await claim(
    ctx,
    id,
    transfers.filter(row => row.payment_id !== id),
  )
  if (known !== undefined) await writeKnown(ctx, known, transfers, facts)
  // A payment that was already granted with this amount gets no new surplus, because all of it may be paid out.
  const isNew = before?.status !== "granted" || before.amount !== amount
  await writeSurplus(ctx, { id, chain_id: part.owner.chain_id, isNew }, transfers, amount - price)
  if (isNew && amount > price) await notifyWaiting(ctx, part.network, [id])
  await pay(ctx, sellable, part, { id, payer: last.from_address, tx_hash: last.tx_hash }, transfers.map(hashOf))
  ctx.tracing?.active()?.set({ "sluice.payment.id": id, "sluice.payment.state": "granted" })
  if (before?.status !== "granted") countGranted(ctx, part, facts)
  return id
}

/** Whether a payment claims a transfer that is not in the list. */
async function losesSome(ctx: TxContext, id: string, transfers: Paid["transfers"]): Promise<boolean> {
  const ids = sqlArray(
    "bigint",
    transfers.map(row => row.id),
  )
  const { rows } =
    await sql`select from claims where payment_id = ${id} and transfer_id <> all(${ids}) limit 1`.execute(ctx.db)
  return rows.length > 0
}

const hashOf = ({ tx_hash }: Pick<Row<"transfers">, "tx_hash">) => tx_hash

async function writeKnown(
  ctx: TxContext,
  id: string,
  transfers: Paid["transfers"],
  facts: Partial<Row<"payments">>,
): Promise<void> {
  await ctx.db.updateTable("payments").set(facts).where("id", "=", id).execute()
  // The other transfers must be free to count again. A transfer that is gone may come back after others have replaced
  // it.
  const ids = transfers.map(row => row.id)
  await ctx.db
    .deleteFrom("claims")
    .where("payment_id", "=", id)
    .where(sql<boolean>`transfer_id <> all(${sqlArray("bigint", ids)})`)
    .execute()
}

/**
 * Grants a reversed payment again when all its money is back, as extra money if another payment has paid meanwhile. A
 * payment that was accepted as extra money may be a stranger's dust, so it never pays for the resource itself, even if
 * it comes back first.
 */
export async function grantAgain(
  ctx: SellingTx,
  sellable: Sellable,
  part: Part,
  payment: Row<"payments">,
): Promise<void> {
  const place = payment.beside ? {} : await placeOf(ctx, sellable, part)
  await ctx.db
    .updateTable("payments")
    .set({ status: "granted", updated_at: ctx.now(), ...place })
    .where("id", "=", payment.id)
    .execute()
  if (payment.exception !== null) await notifyWaiting(ctx, part.network, [payment.id])
  await pay(ctx, sellable, part, payment, await hashesClaimed(ctx, payment.id))
  countGranted(ctx, part, payment)
}

/** Accepts an open payment as paid, as the merchant decided. */
export async function grantAccepted(
  ctx: SellingTx,
  sellable: Sellable,
  part: Part,
  payment: Row<"payments">,
): Promise<void> {
  const place = await placeOf(ctx, sellable, part)
  const accepted = { status: "granted" as const, accepted_at: ctx.now(), updated_at: ctx.now(), ...place }
  await ctx.db.updateTable("payments").set(accepted).where("id", "=", payment.id).execute()
  await dropSurplus(ctx, payment.id)
  await pay(ctx, sellable, part, payment, await hashesClaimed(ctx, payment.id))
  countGranted(ctx, part, payment)
}

type Money = Pick<Row<"payments">, "token" | "amount">

const countGranted = (ctx: TxContext, { owner, network }: Part, money: Money): void =>
  ctx.onCommit(() => countPayment(network, owner.resource_id, "granted", money))

/** Returns, for a resource that a single payment pays for, whether another payment has already paid for it. */
async function placeOf(ctx: TxContext, { paidOnce }: Sellable, { owner }: Part): Promise<{ beside?: boolean }> {
  if (!paidOnce) return {}
  const main = ctx.db.selectFrom("payments").select("id").where("status", "=", "granted").where("beside", "=", false)
  return { beside: (await main.where("resource_id", "=", owner.resource_id).executeTakeFirst()) !== undefined }
}

async function pay(
  ctx: SellingTx,
  sellable: Sellable,
  part: Part,
  payment: Pick<Row<"payments">, "id" | "payer" | "tx_hash">,
  hashes: readonly Row<"payments">["tx_hash"][],
): Promise<void> {
  await makePayouts(ctx, payment.id)
  await sellable.onPaid(ctx, part, payment, [...new Set(hashes)])
}

/** Reverses a granted payment that a reorg removed: cancels the payouts and revokes what the payment bought. */
export async function reverse(
  ctx: SellingTx,
  sellable: Sellable,
  part: Part,
  payment: Pick<Row<"payments">, "id"> & Money,
): Promise<void> {
  const { id } = payment
  await ctx.db.updateTable("payments").set({ status: "reversed", updated_at: ctx.now() }).where("id", "=", id).execute()
  await cancelPayouts(ctx, id)
  await sellable.onReversed(ctx, part, payment)
  const { owner, payer, network } = part
  ctx.onCommit(() => countPayment(network, owner.resource_id, "reversed", payment))
  ctx.log.warn({ paymentId: id, resourceId: owner.resource_id, payer }, "payment reversed by a reorg")
}
