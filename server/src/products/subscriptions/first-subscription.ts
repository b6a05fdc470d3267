/**
 * Decides which of a payer's subscriptions to a product is the first. That one has the trial and the days of grace, so
 * that nobody gets them again with the next subscription. The primary key of `first_subscriptions` decides between
 * subscriptions that begin at the same time: a read could miss one that is not committed yet.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import type { Held } from "./load-subscription.ts"

/** What is claimed: to be the first subscription of a payer to a product. */
export interface FirstClaim {
  payer: Address
  productId: string
  subscriptionId: string
  startedAt: Date
}

/** What {@link begins} found: when a subscription begins, and whose it is. */
export interface Beginning {
  startedAt: Date
  payer: Address
}

/** Returns when a locked subscription begins, and whose it is; undefined where it does not begin now. */
export function begins({ subscription, invoices, session, payer: sender }: Held): Beginning | undefined {
  const { confirmed_at: startedAt } = session
  const isBeginning = subscription.status === null && invoices.length === 1 && session.status === "confirmed"
  if (!isBeginning || !startedAt) return undefined
  const payer = sender ?? session.payer
  if (!payer) throw new Error("a confirmed session has no payer")
  return { startedAt, payer }
}

/**
 * Records for subscriptions that begin whether they are first. A later one has no trial. One whose only payment was
 * removed by a reorg leaves its place to the next.
 */
export async function noteFirst(ctx: TxContext, all: readonly Held[]): Promise<Held[]> {
  const undone = all.filter(isUndone).map(({ subscription }) => subscription.id)
  if (undone.length > 0)
    await sql`delete from first_subscriptions where subscription_id = any(${sqlArray("text", undone)})`.execute(ctx.db)
  const beginning = all.flatMap(held => {
    const { id: subscriptionId, product_id: productId } = held.subscription
    const found = begins(held)
    return found ? [{ ...found, productId, subscriptionId }] : []
  })
  const claimed = new Set(beginning.map(({ subscriptionId }) => subscriptionId))
  const first = await claimFirst(ctx, beginning)
  return all.map((held): Held => {
    const { subscription } = held
    if (!claimed.has(subscription.id)) return held
    const is_first = first.has(subscription.id)
    const trial_days = is_first ? subscription.trial_days : 0
    return { ...held, subscription: { ...subscription, is_first, trial_days } }
  })
}

const isUndone = ({ subscription, invoices, session }: Held): boolean =>
  subscription.status !== null && invoices.length === 1 && session.status !== "confirmed"

/**
 * Claims to be the first, and returns the subscriptions that are. The claims are inserted in the order of their keys, so
 * that two transactions never wait for each other.
 */
export async function claimFirst(ctx: TxContext, claims: readonly FirstClaim[]): Promise<Set<string>> {
  if (claims.length === 0) return new Set()
  const rows = JSON.stringify(
    claims.map(({ payer, productId: product_id, subscriptionId: id, startedAt: at }) => ({
      payer,
      product_id,
      id,
      at,
    })),
  )
  const claimed = sql`jsonb_to_recordset(${rows}::jsonb) as c(payer evm_address, product_id text, id text, at timestamptz)`
  await sql`insert into first_subscriptions (payer, product_id, subscription_id)
    select payer, product_id, id from ${claimed} order by payer, product_id, at, id
    on conflict do nothing`.execute(ctx.db)
  // Another statement, because this one also sees what was committed while the insert waited.
  const found = await sql<{ id: string }>`select c.id from ${claimed}
    join first_subscriptions f on f.payer = c.payer and f.product_id = c.product_id and f.subscription_id = c.id`.execute(
    ctx.db,
  )
  return new Set(found.rows.map(({ id }) => id))
}
