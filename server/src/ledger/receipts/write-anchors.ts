/**
 * Writes the roots of batches, and the keys that sign receipts, to the chain: as calls of the payout wallet, which the
 * factory obeys, so they are stored before they are sent, have one nonce each, and survive a reorg like any payout.
 */
import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { type Hash, ZERO_ADDRESS } from "../../platform/chain/hex.ts"
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
import { dueNow } from "../../platform/jobs/due-now.ts"

/** How many roots one call writes; each costs about 2,300 gas. */
const ROOTS = 200

/** Whether the key may sign: at once, or where roots are written to the chain, when it is registered there. */
export async function mayKeySign(ctx: Context, network: Network, key: Row<"receipt_keys">): Promise<boolean> {
  if (ctx.settings.receipts.anchorMs === undefined) return true
  const state = key.anchor_id === null ? undefined : await stateOf(ctx, key.anchor_id)
  if (state === "final") return true
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

const stateOf = async (ctx: TxContext, id: string) =>
  (await ctx.db.selectFrom("payouts").select("state").where("id", "=", id).executeTakeFirst())?.state

/** Whether the network has the contract. Without it receipts wait: nobody could verify who signed them. */
async function isThere(ctx: Context, network: Network): Promise<boolean> {
  if (await hasReceiptAnchor(network.endpoints)) return true
  const todo = `Run sluice deploy --contract receipt-anchor --network ${network.name}, or set RECEIPT_ANCHOR=off.`
  ctx.log.error({ network: network.name, todo }, "receipts wait: the network has no contract that they are written to")
  return false
}

/** Writes the roots that are due to the chain, in one call, if no earlier call is under way. */
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

/** Makes the roots due again whose call has ended without writing them. */
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
  const now = ctx.now()
  await ctx.db
    .insertInto("payouts")
    .values({
      id,
      chain_id: chainId,
      kind: "anchor",
      source_key: `anchor:${id}`,
      merchant_id: merchantId,
      token: ZERO_ADDRESS,
      recipient: depositFactory,
      amount: BigInt("roots" in written ? written.roots.length : 1),
      to_address: anchorDeployment.address,
      data: anchorData(id, depositFactory, written),
      gas: anchorGas(written),
      reserved: false,
      state: "queued",
      run_at: dueNow(now),
      created_at: now,
      updated_at: now,
    })
    .execute()
  return id
}
