/**
 * Ends returns that happened without the service. Anyone may submit the merchant wallet's signature, so someone else's
 * transaction can move the money. Such a return becomes final without a nonce, once the comparison with the chain has
 * found the outflow in a final block.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { approvalIn, giveBackCall, NO_DEADLINE, returnNonce } from "../../platform/chain/release-call.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { payoutEnds } from "../../platform/metrics.ts"
import { coverShortfall } from "./insert-payout.ts"
import { cancelReturn, returnsOf } from "./make-returns.ts"

/**
 * Ends returns without a nonce whose approval another transaction used. A return becomes final if that transaction made
 * its transfer. Otherwise the return is cancelled, because it can never succeed. Returns how many returns ended.
 */
export async function finishCarriedOut(ctx: Context, network: Network): Promise<number> {
  const { rows: waiting } = await sql<Row<"payouts">>`select i.* from payouts i
    where i.chain_id = ${network.chainId} and i.kind = 'return' and i.state in ('queued', 'held')
      and exists (select from outflows o where o.deposit_id = i.deposit_id and o.token = i.token
        and o.reason = 'given_back' and o.payout_id is null)
    order by i.id`.execute(ctx.db)
  let ended = 0
  for (const payout of waiting) {
    const outflow = await usedFor(ctx, payout)
    if (!outflow) continue
    if (outflow.recipient === payout.recipient && outflow.amount === payout.amount)
      ended += await inTransaction(ctx, ctx => finish(ctx, network, payout, outflow))
    else {
      await cancelReturn(ctx, payout, `its approval was used for another transfer, in ${outflow.tx_hash}`)
      ended++
    }
  }
  return ended
}

/** Returns the outflow that used this return's approval, unless another return is linked to it. */
async function usedFor(ctx: TxContext, payout: Row<"payouts">): Promise<Row<"outflows"> | undefined> {
  const approval = approvalIn(payout.data)
  if (!approval) return undefined
  return await ctx.db
    .selectFrom("outflows")
    .selectAll()
    .where("deposit_id", "=", payout.deposit_id)
    .where("token", "=", payout.token)
    .where("reason", "=", "given_back")
    .where("nonce", "=", approval.nonce)
    .where("payout_id", "is", null)
    .executeTakeFirst()
}

/** The columns of a payout that an outflow executed. */
const carriedOut = (ctx: TxContext, { tx_hash, block_number, block_hash }: Row<"outflows">) => ({
  tx_hash,
  block_number,
  block_hash,
  reserved: true,
  succeeded: true,
  state: "final" as const,
  held_reason: null,
  held_detail: null,
  updated_at: ctx.now(),
})

async function finish(
  ctx: TxContext,
  network: NetworkInfo,
  { id, payment_id }: Row<"payouts">,
  outflow: Row<"outflows">,
): Promise<number> {
  // Locks the payment before its payouts, as all code does.
  await ctx.db.selectFrom("payments").select("id").where("id", "=", payment_id).forNoKeyUpdate().execute()
  const waits = ctx.db.selectFrom("payouts").selectAll().where("id", "=", id).where("state", "in", ["queued", "held"])
  const payout = await waits.forNoKeyUpdate().executeTakeFirst()
  if (!payout) return 0
  if (!payout.reserved) await coverShortfall(ctx, payout)
  await ctx.db.updateTable("payouts").set(carriedOut(ctx, outflow)).where("id", "=", id).execute()
  await link(ctx, outflow, id)
  payoutEnds.inc({ network: network.name, wallet: "payout", end: "final" })
  ctx.log.info({ payoutId: id, txHash: outflow.tx_hash }, "a return was carried out by another transaction")
  return 1
}

/** Links an outflow to a return, so that the books count the return instead of the outflow. */
async function link(ctx: TxContext, outflow: Row<"outflows">, payoutId: string): Promise<void> {
  const linked = await ctx.db
    .updateTable("outflows")
    .set({ payout_id: payoutId })
    .where("id", "=", outflow.id)
    .where("payout_id", "is", null)
    .executeTakeFirst()
  if (linked.numUpdatedRows === 0n) throw new Error(`the outflow ${outflow.id} has carried out another return`)
}

/**
 * Writes the final return of a payment that an outflow just made `returned`. Call this in the same transaction, under
 * the payment's lock. The return's amount is what the outflow moved, because the merchant decided that amount. `owed`
 * is the amount, in base units, that waited for the merchant's decision.
 */
export async function writeCarriedOut(
  ctx: TxContext,
  payment: Row<"payments">,
  outflow: Row<"outflows">,
  owed: bigint,
): Promise<void> {
  const { deposit_id, token, recipient, amount } = outflow
  const excess = amount > owed ? amount - owed : null
  const deposit = await ctx.db.selectFrom("deposits").selectAll().where("id", "=", deposit_id).executeTakeFirstOrThrow()
  const { made, moved } = await returnsOf(ctx, payment.id)
  const id = randomUUID()
  const message = { token, to: recipient, amount, nonce: returnNonce(payment.id, moved), deadline: NO_DEADLINE }
  await coverShortfall(ctx, { deposit_id, token, amount })
  await ctx.db
    .insertInto("payouts")
    .values({
      ...carriedOut(ctx, outflow),
      id,
      chain_id: deposit.chain_id,
      deposit_id,
      payment_id: payment.id,
      token,
      recipient,
      amount,
      excess,
      kind: "return",
      source_key: `payment:${payment.id}:return:${made}`,
      to_address: deposit.factory,
      // The call that the service would have sent. The real signature is in the transaction that someone else sent.
      data: giveBackCall(id, deposit, message, "0x"),
      run_at: ctx.now(),
      created_at: ctx.now(),
    })
    .execute()
  await link(ctx, outflow, id)
}
