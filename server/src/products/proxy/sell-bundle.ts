/**
 * Sells calls of bundles. Each transfer that settled a call is a payment, and any other money needs the merchant's
 * decision. Settlement locks the bundle's row. A call is served when it settles, so a payment grants nothing more.
 * Agents' payments emit no event.
 */
// I/O: each method uses the context that it is given. The type of that context comes with Sellable.
import { classify } from "../../ledger/settlement/classify.ts"
import { sessionNotice } from "../../ledger/settlement/notify-paid.ts"
import { type Part, type Sellable, withoutRests } from "../../ledger/settlement/sellable.ts"
import type { Address, Hash } from "../../platform/chain/hex.ts"
import { networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { countedAlone, dueSenders, lockDueTransfers, standingPayments } from "../paywalls/load-open-transfers.ts"
import { DUE_CALLS, openCalls } from "./load-open-calls.ts"
import { planBundle } from "./plan-bundle.ts"

/** One sender at one bundle. */
interface BundlePart extends Part {
  payer: Address
  /** The transfers of all senders that this transaction settles. */
  due: readonly bigint[]
}

/** Reads the amounts of the bundle's calls that each of these transactions settled. */
export type SettlementsOf = (
  ctx: TxContext,
  bundleId: string,
  hashes: readonly Hash[],
) => Promise<ReadonlyMap<Hash, readonly bigint[]>>

/** The `Sellable` for calls of bundles. `settlementsOf` reads the settlements of x402. */
export const bundleSales = (settlementsOf: SettlementsOf): Sellable<BundlePart> => ({
  prefix: "bdl",
  notFound: "NOT_FOUND",
  purpose: "call",
  paidOnce: false,

  due: (ctx, network) => dueSenders(ctx, network, "bdl"),

  groupOf: async (_ctx, { resource_id, payer }) => ({ resourceId: resource_id, senders: [payer] }),

  async hold(ctx, group) {
    const { resourceId, senders } = group
    const { merchant_id, chain_id } = await ctx.db
      .selectFrom("bundles")
      .select(["merchant_id", "chain_id"])
      .where("id", "=", resourceId)
      .forNoKeyUpdate()
      .executeTakeFirstOrThrow()
    const network = networkOf(ctx.chain, chain_id)
    const due = await lockDueTransfers(ctx, group, DUE_CALLS)
    const owner = { merchant_id, chain_id, resource_id: resourceId }
    const parts: BundlePart[] = []
    for (const payer of senders)
      parts.push({ owner, network, payer, due, standing: await standingPayments(ctx, resourceId, payer, due) })
    return { parts, due }
  },

  async plan(ctx, { owner: { resource_id: id }, network, payer, due }, screened) {
    const rows = withoutRests(await openCalls(ctx, id, payer, due))
    // This reads all payments of the payer, so it runs only if some transfer is reported by only one endpoint.
    const alone = rows.some(row => row.single_source) ? await countedAlone(ctx, network, id, payer) : 0n
    const plan = planBundle({
      payer,
      transfers: classify(ctx, network, rows, screened, alone),
      settlements: await settlementsOf(ctx, id, [...new Set(rows.map(row => row.tx_hash))]),
      screening: screened.get(payer) ?? "unknown",
      now: ctx.now(),
    })
    return { ...plan, isMore: plan.isMore || due.length === DUE_CALLS }
  },

  async onPaid() {},
  async onReversed() {},
  async finish() {},
  async onDecided() {},
  describe: async (_ctx, payment) => sessionNotice(payment),
})
