/**
 * Writes the roots of batches, and the keys that sign receipts, to the chain. These writes are calls of the payout
 * wallet, which the factory obeys. So these calls are stored before they are sent, have one nonce each, and survive a
 * reorg like any payout.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import type { Hash } from "../../platform/chain/hex.ts"
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Network } from "../../platform/chain/networks.ts"
import {
  anchorData,
  anchorDeployment,
  anchorGas,
  hasReceiptAnchor,
  type Written,
} from "../../platform/chain/receipt-anchor.ts"
import { type Context, inTransaction, type TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { sqlArray } from "../../platform/db/sql-array.ts"
import { insertOwnCall } from "./insert-own-call.ts"

/** How many roots one call writes. Each root costs about 2,300 gas. */
const ROOTS = 200

/**
 * Whether the key may sign: immediately, or, if roots are written to the chain, once the key is registered there.
 * Registers the key if necessary.
 */
export async function mayKeySign(ctx: Context, network: Network, key: Row<"receipt_keys">): Promise<boolean> {
  if (await isRegistered(ctx, key)) return true
  const state = key.anchor_id === null ? undefined : await stateOf(ctx, key.anchor_id)
  const isOver = state === undefined || state === "reverted" || state === "cancelled"
  if (!isOver || !(await isThere(ctx, network))) return false
  await inTransaction(ctx, async ctx => {
    const first = ctx.db.selectFrom("receipts").select("merchant_id").where("chain_id", "=", network.chainId)
    const { merchant_id } = (await first.where("root", "is", null).orderBy("n").limit(1).executeTakeFirst()) ?? {}
    if (merchant_id === undefined) return
    const id = await insertCall(ctx, network, merchant_id, { key: key.id })
    const keys = ctx.db.updateTable("receipt_keys").set({ anchor_id: id }).where("id", "=", key.id)
    const { numUpdatedRows } = await keys
      .where(sql<boolean>`anchor_id is not distinct from ${key.anchor_id}`)
      .executeTakeFirst()
    if (numUpdatedRows === 0n) throw new Error("another process registers the key")
  })
  await ctx.wakes.wake("payouts")
  return false
}

/** Whether a key's registration on the chain is final. With RECEIPT_ANCHOR=off, no key needs to be registered. */
export const isRegistered = async (ctx: TxContext, { anchor_id }: Row<"receipt_keys">): Promise<boolean> =>
  ctx.settings.receipts.anchorMs === undefined || (anchor_id !== null && (await stateOf(ctx, anchor_id)) === "final")

/**
 * Revokes keys that another key has replaced, one at a time. A key is revoked once everything that it signed is final
 * on the chain, because nobody would believe what is written after the revocation.
 */
export async function revokeReplaced(ctx: Context, network: Network): Promise<void> {
  if (ctx.settings.receipts.anchorMs === undefined) return
  const [found] = await replacedKeys(ctx, network)
  if (!found) return
  await inTransaction(ctx, async ctx => {
    // A process that writes a batch signed by this key locks this row too.
    await sql`select from receipt_keys where id = ${found.id} for no key update`.execute(ctx.db)
    const row = (await replacedKeys(ctx, network)).find(({ id }) => id === found.id)
    if (!row || row.merchant_id === null) return
    const id = await insertCall(ctx, network, row.merchant_id, { revoked: row.id })
    await ctx.db.updateTable("receipt_keys").set({ revoke_id: id }).where("id", "=", row.id).execute()
  })
  await ctx.wakes.wake("payouts")
}

/**
 * Returns the keys that another key has replaced and that no call revokes, if everything that they signed is final on
 * the chain.
 */
async function replacedKeys(ctx: TxContext, { chainId, depositFactory }: NetworkInfo) {
  const { rows } = await sql<{ id: string; merchant_id: string | null }>`
    select k.id, (select r.merchant_id from receipts r where r.chain_id = ${chainId} order by r.n limit 1) as merchant_id
    from receipt_keys k join payouts a on a.id = k.anchor_id and a.state = 'final'
    where k.chain_id = ${chainId} and k.factory = ${depositFactory}
      and (k.revoke_id is null or exists (select from payouts i where i.id = k.revoke_id and i.state in ('reverted', 'cancelled')))
      and exists (select from receipt_keys o join payouts i on i.id = o.anchor_id and i.state = 'final'
        where o.chain_id = k.chain_id and o.factory = k.factory and o.created_at > k.created_at)
      and not exists (select from receipt_batches b left join payouts i on i.id = b.anchor_id
        where b.key_id = k.id and i.state is distinct from 'final')
    order by k.created_at`.execute(ctx.db)
  return rows
}

const stateOf = async (ctx: TxContext, id: string) =>
  (await ctx.db.selectFrom("payouts").select("state").where("id", "=", id).executeTakeFirst())?.state

/**
 * Whether the network has the contract. Without the contract receipts wait, because nobody could verify who signed
 * them.
 */
async function isThere(ctx: Context, network: Network): Promise<boolean> {
  if (await hasReceiptAnchor(network.endpoints)) return true
  const todo = `Run sluice deploy --contract receipt-anchor --network ${network.name}, or set RECEIPT_ANCHOR=off.`
  ctx.log.error({ network: network.name, todo }, "receipts wait: the network has no contract that they are written to")
  return false
}

/** Writes all roots that are due, in one call to the chain, unless an earlier call is still under way. */
export async function anchorBatches(ctx: Context, network: Network): Promise<void> {
  const { anchorMs } = ctx.settings.receipts
  if (anchorMs === undefined) return
  const { chainId } = network
  const since = new Date(ctx.now().getTime() - anchorMs)
  const { rows } = await sql<{ due: boolean }>`
    select exists (select from receipt_batches where chain_id = ${chainId} and anchor_id is null) and not exists (
        select from payouts i where i.chain_id = ${chainId} and i.kind = 'anchor' and i.state in ('queued', 'held', 'assigned', 'mined'))
      and coalesce((select anchored_at from receipt_rounds where chain_id = ${chainId}), '-infinity') <= ${since} as due`.execute(
    ctx.db,
  )
  if (!rows[0]?.due || !(await isThere(ctx, network))) return
  await inTransaction(ctx, ctx => writeRoots(ctx, network))
  await ctx.wakes.wake("payouts")
}

async function writeRoots(ctx: TxContext, network: NetworkInfo): Promise<void> {
  const { rows } = await sql<{ root: Hash; prev_root: Hash | null; merchant_id: string }>`
    select b.root, b.prev_root, (select r.merchant_id from receipts r where r.root = b.root limit 1) as merchant_id
    from receipt_batches b where b.chain_id = ${network.chainId} and b.anchor_id is null
    order by b.n limit ${ROOTS} for no key update of b`.execute(ctx.db)
  const [first] = rows
  if (!first) return
  const roots = rows.map(({ root }) => root)
  const id = await insertCall(ctx, network, first.merchant_id, { prevRoot: first.prev_root, roots })
  await sql`update receipt_batches set anchor_id = ${id} where root = any(${sqlArray("text", roots)})`.execute(ctx.db)
  await ctx.db
    .updateTable("receipt_rounds")
    .set({ anchored_at: ctx.now() })
    .where("chain_id", "=", network.chainId)
    .execute()
}

/** Makes roots due again if their call ended without writing them. */
export async function anchorAgain(ctx: TxContext, { chainId }: Pick<NetworkInfo, "chainId">): Promise<void> {
  await sql`update receipt_batches b set anchor_id = null from payouts i
    where i.id = b.anchor_id and i.chain_id = ${chainId} and i.kind = 'anchor' and i.state in ('reverted', 'cancelled')`.execute(
    ctx.db,
  )
}

async function insertCall(
  ctx: TxContext,
  { chainId, depositFactory }: Pick<NetworkInfo, "chainId" | "depositFactory">,
  merchantId: string,
  written: Written,
): Promise<string> {
  const id = randomUUID()
  await insertOwnCall(ctx, {
    id,
    chain_id: chainId,
    kind: "anchor",
    source_key: `anchor:${id}`,
    merchant_id: merchantId,
    recipient: depositFactory,
    amount: BigInt("roots" in written ? written.roots.length : 1),
    to_address: anchorDeployment.address,
    data: anchorData(id, depositFactory, written),
    gas: anchorGas(written),
  })
  return id
}
