/**
 * Decides which of a payer's subscriptions to a product is the first. Only that subscription has the trial and the
 * grace, so nobody gets them twice. The primary key of `first_subscriptions` decides between concurrent starts,
 * because a read could miss an uncommitted one.
 */
import { sql } from "kysely"
import type { Address } from "../../platform/chain/hex.ts"
import { mayBuy } from "../../platform/chain/may-buy.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { type Held, lastOf } from "./load-subscription.ts"

/** A claim to be a payer's first subscription to a product. */
export interface FirstClaim {
  payer: Address
  productId: string
  subscriptionId: string
  chainId: number
  startedAt: Date
}

/** The result of {@link begins}: when a subscription starts, and its payer. */
export interface Beginning {
  startedAt: Date
  payer: Address
}

/** Returns when a locked subscription starts, and its payer; undefined if it does not start now. */
export function begins({ subscription, invoices, session, payer: sender }: Held): Beginning | undefined {
  const { confirmed_at: startedAt } = session
  const isBeginning = subscription.status === null && invoices.length === 1 && session.status === "confirmed"
  if (!isBeginning || !startedAt) return undefined
  const payer = sender ?? session.payer
  if (!payer) throw new Error("a confirmed session has no payer")
  return { startedAt, payer }
}

/**
 * Records whether subscriptions that start are first. A later subscription has no trial. If a reorg removed a
 * subscription's only payment, the next one takes its place. A subscription that moved before it restarts takes the
 * places at both products.
 */
export async function noteFirst(ctx: TxContext, all: readonly Held[]): Promise<Held[]> {
  const undone = all.filter(isUndone).map(({ subscription }) => subscription.id)
  if (undone.length > 0)
    await sql`delete from first_subscriptions where subscription_id = any(${sqlArray("text", undone)})`.execute(ctx.db)
  const beginning = all.filter(held => begins(held))
  const isFirst = await claimFirst(
    ctx,
    beginning.flatMap(held => {
      const found = begins(held)
      const { id: subscriptionId, chain_id: chainId, product_id } = held.subscription
      const products = new Set([lastOf(held.invoices).product_id, product_id])
      return found ? [...products].map(productId => ({ ...found, productId, subscriptionId, chainId })) : []
    }),
  )
  const claimed = new Set(beginning)
  return all.map((held): Held => {
    if (!claimed.has(held)) return held
    const { subscription, invoices } = held
    const is_first = isFirst(subscription.id, lastOf(invoices).product_id)
    return { ...held, subscription: { ...subscription, is_first, has_trial: is_first } }
  })
}

/** Whether a reorg removed a subscription's only payment and the job has not noticed yet. */
export const isUndone = ({ subscription, invoices, session }: Held): boolean =>
  subscription.status !== null && invoices.length === 1 && session.status !== "confirmed"

/** Returns whether a subscription is its payer's first to a product. */
type IsFirst = (subscriptionId: string, productId: string) => boolean

/**
 * Claims to be the first, and returns which claims hold. Claims are inserted in key order, so two transactions that
 * only insert never deadlock. After a reorg, places are also deleted, in no order; `inTransaction` retries a
 * deadlock. A sender address that many payers share takes no place, so each of its subscriptions is first.
 */
export async function claimFirst(ctx: TxContext, claims: readonly FirstClaim[]): Promise<IsFirst> {
  const isSomebody = ({ chainId, payer }: FirstClaim) => mayBuy(networkOf(ctx.chain, chainId), payer)
  const holding = await insertClaims(ctx, claims.filter(isSomebody))
  const first = new Set(
    [...holding, ...claims.filter(each => !isSomebody(each))].map(each => keyOf(each.subscriptionId, each.productId)),
  )
  return (subscriptionId, productId) => first.has(keyOf(subscriptionId, productId))
}

const keyOf = (subscriptionId: string, productId: string): string => `${subscriptionId} ${productId}`

type Holding = Pick<FirstClaim, "subscriptionId" | "productId">

/** Inserts the claims whose places are free, and returns which claims hold. */
async function insertClaims(ctx: TxContext, claims: readonly FirstClaim[]): Promise<Holding[]> {
  if (claims.length === 0) return []
  const rows = JSON.stringify(
    claims.map(({ payer, productId: product_id, subscriptionId: id, startedAt: at }) => ({
      payer,
      product_id,
      id,
      at,
    })),
  )
  const claimed = sql`jsonb_to_recordset(${rows}::jsonb) as c(payer evm_address, product_id text, id text, at timestamptz)`
  // During a rollout, processes of the old version delete no place after a reorg. The delete is not part of the
  // insert, because the insert's snapshot is older than the status of a holder for which it waited.
  await sql`delete from first_subscriptions f using ${claimed}, subscriptions s
    where f.payer = c.payer and f.product_id = c.product_id and s.id = f.subscription_id and s.status is null`.execute(
    ctx.db,
  )
  // Old processes also start subscriptions without taking a place. Such a subscription has the place if it had a
  // trial. A place that is taken is proposed too, because its holder may have been deleted since.
  await sql`insert into first_subscriptions (payer, product_id, subscription_id)
    select payer, product_id, coalesce((select s.id from subscriptions s
        where s.payer = c.payer and s.product_id = c.product_id and s.id <> c.id and s.status is not null and s.has_trial
          and not exists (select from first_subscriptions f where f.payer = c.payer and f.product_id = c.product_id)
        order by s.started_at, s.id limit 1), c.id)
    from ${claimed}
    order by payer, product_id, at, id
    on conflict do nothing`.execute(ctx.db)
  // A separate statement also sees what was committed while the insert waited.
  const found = await sql<Holding>`select c.id as "subscriptionId", c.product_id as "productId" from ${claimed}
    join first_subscriptions f on f.payer = c.payer and f.product_id = c.product_id and f.subscription_id = c.id`.execute(
    ctx.db,
  )
  return found.rows
}
