/**
 * Ends open payments and surpluses as returned if the merchant has given their money back without the service. The
 * nonce of its signature identifies the payment, if the service had asked for that signature. Otherwise the amount
 * does, if exactly one open payment or surplus has it.
 */
import { sql } from "kysely"
import type { Address, Hash } from "../chain/hex.ts"
import type { Network, NetworkInfo } from "../chain/networks.ts"
import { returnNonce } from "../chain/release-call.ts"
import { screen } from "../chain/sanctions.ts"
import { type Context, inTransaction, type TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { sqlArray } from "../db/sql-array.ts"
import { ApiError } from "../errors.ts"
import { finishCarriedOut, writeCarriedOut } from "../payouts/carried-out.ts"
import { isPaidOut, lockOpen, paymentOf, writeReturned } from "./resolve-exception.ts"
import { type Screened, sellableOf } from "./sellable.ts"

/** Money that waits for the merchant's decision at an address from which the merchant gave money back. */
interface Waiting {
  paymentId: string
  merchantId: string
  depositId: bigint
  token: Address
  /** In base units. */
  amount: bigint
  /** A surplus: only an outflow of its whole amount ends it, because the rest of its payment still counts. */
  isSurplus: boolean
  /** The last block that brought some of it. */
  since: bigint
}

/** An outflow, and the open payment or surplus that it returned. */
interface Match {
  waiting: Waiting
  outflow: Row<"outflows">
}

/**
 * Ends what a final block shows as given back: first the returns that wait to be sent, then the open payments and
 * surpluses. What can't be ended now is left for the next comparison.
 */
export async function followGivenBack(ctx: Context, network: Network): Promise<void> {
  let ended = await finishCarriedOut(ctx, network)
  const found = await waitingAt(ctx, network)
  if (found.length > 0) {
    const depositIds = [...new Set(found.map(each => each.depositId))]
    const matches = matchGivenBack(found, await givenBackAt(ctx, depositIds), await nonceOwners(ctx, depositIds))
    for (const match of matches) ended += await tryEnding(ctx, match)
  }
  if (ended === 0) return
  await ctx.wakes.wake("payments")
  await ctx.wakes.wake("payouts")
  ctx.wakes.wakeSoon("deliveries")
}

async function waitingAt(ctx: TxContext, { chainId }: NetworkInfo): Promise<Waiting[]> {
  const { rows } = await sql<Waiting>`
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
    .where("deposit_id", "in", depositIds)
    .where("reason", "=", "given_back")
    .where("payout_id", "is", null)
    .orderBy("block_number")
    .orderBy("log_index")
    .execute()

/** Maps each return nonce that the service has asked for, or would ask for, at these addresses to its payment. */
async function nonceOwners(ctx: TxContext, depositIds: readonly bigint[]): Promise<Map<Hash, string>> {
  const { rows } = await sql<{ id: string; returns: number }>`
    select p.id, (select count(*)::int from payouts i where i.payment_id = p.id and i.kind = 'return') as returns
    from (select distinct c.payment_id as id from claims c join transfers t on t.id = c.transfer_id
      where t.deposit_id = any(${sqlArray("bigint", depositIds)})) p`.execute(ctx.db)
  return new Map(
    rows.flatMap(({ id, returns }) =>
      Array.from({ length: returns + 1 }, (_, moved): [Hash, string] => [returnNonce(id, moved), id]),
    ),
  )
}

/**
 * Matches each outflow with what it ended: by its nonce, or by its amount if exactly one open payment or surplus from
 * before it has that amount. Pure.
 */
function matchGivenBack(
  waiting: readonly Waiting[],
  outflows: readonly Row<"outflows">[],
  owners: ReadonlyMap<Hash, string>,
): Match[] {
  const left = new Set(waiting)
  const matches: Match[] = []
  const take = (outflow: Row<"outflows">, found: readonly Waiting[]) => {
    const [only, second] = found
    if (!only || second) return
    left.delete(only)
    matches.push({ waiting: only, outflow })
  }
  const isAt = (each: Waiting, { deposit_id, token }: Row<"outflows">) =>
    each.depositId === deposit_id && each.token === token
  const ownerOf = ({ nonce }: Row<"outflows">) => (nonce === null ? undefined : owners.get(nonce))
  const isAll = (each: Waiting, { amount }: Row<"outflows">) => !each.isSurplus || each.amount === amount
  for (const outflow of outflows) {
    const owner = ownerOf(outflow)
    const isIts = (each: Waiting) => each.paymentId === owner && isAt(each, outflow) && isAll(each, outflow)
    if (owner !== undefined) take(outflow, [...left].filter(isIts))
  }
  for (const outflow of outflows) {
    if (ownerOf(outflow) !== undefined) continue
    const isLike = (each: Waiting) => each.amount === outflow.amount && each.since < outflow.block_number
    take(
      outflow,
      [...left].filter(each => isAt(each, outflow) && isLike(each)),
    )
  }
  return matches
}

/**
 * Ends one; returns how many ended. Leaves it as it is if its money is moving to another block or it was decided
 * meanwhile.
 */
async function tryEnding(ctx: Context, match: Match): Promise<number> {
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

async function end(ctx: TxContext, { waiting, outflow }: Match, screened: Screened): Promise<number> {
  const open = await lockOpen(ctx, waiting.merchantId, waiting.paymentId)
  const back = open.surplus ?? open.payment
  if (back.deposit_id !== waiting.depositId || back.amount !== waiting.amount) return 0
  // Its shares were paid out too: a person has to check that.
  if (!open.surplus && (await isPaidOut(ctx, waiting.paymentId))) return 0
  await writeReturned(ctx, open, outflow.recipient, screened, payment =>
    writeCarriedOut(ctx, payment, outflow, back.amount),
  )
  // Settling opens the payment again about what was not given back.
  if (outflow.amount < back.amount)
    await sql`update transfers t set run_at = ${ctx.now()} from claims c
      where c.transfer_id = t.id and c.payment_id = ${waiting.paymentId}`.execute(ctx.db)
  ctx.log.info({ paymentId: waiting.paymentId, txHash: outflow.tx_hash }, "payment returned by the merchant itself")
  return 1
}
