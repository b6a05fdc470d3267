/**
 * Bundles as something that is sold: each transfer that settled a call is a payment, and any other money waits for the merchant.
 * Settled under the bundle's row. Calls were served when they were settled, so a payment gives nothing more, and no event is
 * emitted (agents' payments have none).
 */
// I/O: by the context of each method, whose type comes with Sellable.
import type { Address, Hash } from "../chain/hex.ts"
import { networkOf } from "../chain/networks.ts"
import type { TxContext } from "../context.ts"
import { countedAlone, dueSenders, standingPayments } from "../paywalls/open-transfers.ts"
import { classify } from "../settlement/classify.ts"
import { sessionNotice } from "../settlement/notify-paid.ts"
import type { Part, Sellable } from "../settlement/sellable.ts"
import { CALLS_A_BATCH, lockDueCalls, openCalls } from "./open-calls.ts"
import { planBundle } from "./plan-bundle.ts"

/** One sender at one bundle. */
interface BundlePart extends Part {
  payer: Address
  /** What this transaction settles, of all senders. */
  due: readonly bigint[]
}

/** The amounts of the calls of a bundle that each of the transactions settled. */
export type SettlementsOf = (
  ctx: TxContext,
  bundleId: string,
  hashes: readonly Hash[],
) => Promise<ReadonlyMap<Hash, readonly bigint[]>>

/** Calls, for sale at bundles; `settlementsOf` reads what x402 has settled. */
export const bundleSales = (settlementsOf: SettlementsOf): Sellable<BundlePart> => ({
  prefix: "bdl",
  notFound: "NOT_FOUND",
  purpose: "call",
  paidOnce: false,

  due: (ctx, network) => dueSenders(ctx, network, "bdl"),

  groupOf: async (_ctx, { resource_id, payer }) => ({ resourceId: resource_id, senders: [payer] }),

  async hold(ctx, { resourceId, senders }) {
    const { merchant_id, chain_id } = await ctx.db
      .selectFrom("bundles")
      .select(["merchant_id", "chain_id"])
      .where("id", "=", resourceId)
      .forNoKeyUpdate()
      .executeTakeFirstOrThrow()
    const network = networkOf(ctx.chain, chain_id)
    const due = await lockDueCalls(ctx, network, resourceId, senders)
    const owner = { merchant_id, chain_id, resource_id: resourceId }
    const parts: BundlePart[] = []
    for (const payer of senders)
      parts.push({ owner, network, payer, due, standing: await standingPayments(ctx, resourceId, payer, due) })
    return { parts, due }
  },

  async plan(ctx, { owner: { resource_id: id }, network, payer, due }, screened) {
    const rows = await openCalls(ctx, id, payer, due)
    // It reads all that the payer has paid, and counts only beside such a transfer.
    const alone = rows.some(row => row.single_source) ? await countedAlone(ctx, network, id, payer) : 0n
    const plan = planBundle({
      payer,
      transfers: classify(ctx, network, rows, screened, alone),
      settlements: await settlementsOf(ctx, id, [...new Set(rows.map(row => row.tx_hash))]),
      screening: screened.get(payer) ?? "unknown",
      now: ctx.now(),
    })
    return { ...plan, isMore: due.length === CALLS_A_BATCH }
  },

  async onPaid() {},
  async onReversed() {},
  async finish() {},
  async onDecided() {},
  describe: async (_ctx, payment) => sessionNotice(payment),
})
