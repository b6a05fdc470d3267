/**
 * Ends open payments and surpluses as returned if the merchant has given their money back without the service. If the
 * service requested the signature, the nonce identifies the payment. Otherwise the amount identifies the payment, if
 * exactly one open payment or surplus has this amount.
 */
import { type RawBuilder, sql } from "kysely"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import { returnNonce } from "../../platform/chain/release-call.ts"
import { screen } from "../../platform/chain/screen-addresses.ts"
import { inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { ApiError } from "../../platform/errors.ts"
import { finishCarriedOut, writeCarriedOut } from "../payouts/finish-carried-out.ts"
import { type AwaitedReturn, type Match, matchGivenBack } from "./match-given-back.ts"
import { isPaidOut, lockOpen, paymentOf, writeReturned } from "./resolve-exception.ts"
import type { SellingContext, SellingTx } from "./sellable.ts"
import { type Screened, sellableOf } from "./sellable.ts"

/**
 * Ends what the merchant had given back by a final block: first the returns that wait to be sent, then the open
 * payments and surpluses. Anything that can't end now is left for the next comparison.
 */
export async function followGivenBack(ctx: SellingContext, network: Network): Promise<void> {
  let ended = await finishCarriedOut(ctx, network)
  const found = await waitingAt(ctx, network)
  if (found.length > 0) {
    const outflows = await givenBackAt(ctx, [...new Set(found.map(each => each.depositId))])
    const matches = matchGivenBack(found, outflows, await nonceOwners(ctx, found, outflows))
    for (const match of matches) ended += await tryEnding(ctx, match)
  }
  if (ended === 0) return
  await ctx.wakes.wake("payments")
  await ctx.wakes.wake("payouts")
}

async function waitingAt(ctx: TxContext, { chainId }: NetworkInfo): Promise<AwaitedReturn[]> {
  const { rows } = await sql<AwaitedReturn>`
    select w.id as "paymentId", w.merchant_id as "merchantId", w.deposit_id as "depositId", w.token, w.amount, w."isSurplus",
      (select max(t.block_number) from claims c join transfers t on t.id = c.transfer_id where c.payment_id = w.id) as since
    from (select id, merchant_id, deposit_id, token, amount, false as "isSurplus" from payments
        where chain_id = ${chainId} and status = 'open'
      union all
      select p.id, p.merchant_id, s.deposit_id, s.token, s.amount, true from surpluses s join payments p on p.id = s.payment_id
        where p.chain_id = ${chainId} and p.status = 'granted' and s.state = 'open') w
    where exists (select from outflows o where o.deposit_id = w.deposit_id and o.token = w.token
      and o.reason = 'given_back' and o.payout_id is null)
    order by w.id`.execute(ctx.db)
  return rows
}

const givenBackAt = (ctx: TxContext, depositIds: readonly bigint[]): Promise<Row<"outflows">[]> =>
  ctx.db
    .selectFrom("outflows")
    .selectAll()
    .where(sql<boolean>`deposit_id = any(${sqlArray("bigint", depositIds)})`)
    .where("reason", "=", "given_back")
    .where("payout_id", "is", null)
    .orderBy("block_number")
    .orderBy("log_index")
    .execute()

/** How many payments' nonces are hashed in one go, because hashing blocks everything else. */
const PAYMENTS_AT_ONCE = 500

/**
 * Maps these outflows' nonces to the payments whose return has, or would have, that nonce. Most nonces belong to
 * waiting payments. There may be a million other payments at these addresses, so they are read in batches until each
 * nonce is found.
 */
async function nonceOwners(
  ctx: TxContext,
  waiting: readonly AwaitedReturn[],
  outflows: readonly Row<"outflows">[],
): Promise<Map<Hash, string>> {
  const wanted = new Set(outflows.flatMap(({ nonce }) => nonce ?? []))
  const owners = new Map<Hash, string>()
  const look = ({ id, returns }: Numbered) => {
    for (let moved = 0; moved <= returns; moved++) {
      const nonce = returnNonce(id, moved)
      if (wanted.delete(nonce)) owners.set(nonce, id)
    }
  }
  const ids = [...new Set(waiting.map(({ paymentId }) => paymentId))]
  for (let start = 0; start < ids.length && wanted.size > 0; start += PAYMENTS_AT_ONCE)
    (await numbered(ctx, sql`p.id = any(${sqlArray("text", ids.slice(start, start + PAYMENTS_AT_ONCE))})`)).forEach(
      look,
    )
  for (const resourceId of await resourcesAt(ctx, waiting)) {
    let after = sql`true`
    for (let isMore = true; isMore && wanted.size > 0; ) {
      const rows = await numbered(ctx, sql`p.resource_id = ${resourceId} and ${after}`)
      rows.forEach(look)
      const last = rows.at(-1)
      if (last) after = sql`(p.payer, p.id) > (${last.payer}, ${last.id})`
      isMore = rows.length === PAYMENTS_AT_ONCE
    }
  }
  return owners
}

/** A payment, and how many returns it has ever had. */
interface Numbered {
  id: string
  payer: Address
  returns: number
}

async function numbered(ctx: TxContext, which: RawBuilder<unknown>): Promise<Numbered[]> {
  const { rows } = await sql<Numbered>`
    select p.id, p.payer, (select count(*)::int from payouts i where i.payment_id = p.id and i.kind = 'return') as returns
    from payments p where ${which} order by p.payer, p.id limit ${PAYMENTS_AT_ONCE}`.execute(ctx.db)
  return rows
}

async function resourcesAt(ctx: TxContext, waiting: readonly AwaitedReturn[]): Promise<string[]> {
  const ids = sqlArray("bigint", new Set(waiting.map(({ depositId }) => depositId)))
  const { rows } = await sql<{ id: string }>`
    select distinct resource_id as id from deposits where id = any(${ids}) order by 1`.execute(ctx.db)
  return rows.map(({ id }) => id)
}

/**
 * Ends one payment, and returns how many ended. Does nothing if the payment's money is moving to another block, or if
 * the payment was decided in the meantime.
 */
async function tryEnding(ctx: SellingContext, match: Match): Promise<number> {
  const { paymentId, merchantId } = match.waiting
  try {
    const payment = await paymentOf(ctx, merchantId, paymentId)
    const { senders } = await sellableOf(ctx, payment.resource_id).groupOf(ctx, payment)
    const screened = await screen(ctx, [...new Set([payment.payer, ...senders])], `decide:${paymentId}`)
    return await inTransaction(ctx, ctx => end(ctx, match, screened))
  } catch (error) {
    if (!(error instanceof ApiError)) throw error
    ctx.log.info({ paymentId, reason: error.message }, "a payment was given back and can't be ended yet")
    return 0
  }
}

async function end(ctx: SellingTx, { waiting, outflow }: Match, screened: Screened): Promise<number> {
  const open = await lockOpen(ctx, waiting.merchantId, waiting.paymentId)
  const back = open.surplus ?? open.payment
  if (back.deposit_id !== waiting.depositId || back.amount !== waiting.amount) return 0
  // The payment's shares were paid out too, so a person has to check the payment.
  if (!open.surplus && (await isPaidOut(ctx, waiting.paymentId))) return 0
  await writeReturned(ctx, open, outflow.recipient, screened, payment =>
    writeCarriedOut(ctx, payment, outflow, back.amount),
  )
  // Settlement reopens the payment for the amount that was not given back.
  if (outflow.amount < back.amount)
    await sql`update transfers t set run_at = ${ctx.now()} from claims c
      where c.transfer_id = t.id and c.payment_id = ${waiting.paymentId}`.execute(ctx.db)
  ctx.log.info({ paymentId: waiting.paymentId, txHash: outflow.tx_hash }, "payment returned by the merchant itself")
  return 1
}
