/**
 * Chooses the trace that a payment continues: the trace of the sale, of the authorization that paid, or of the buyer's
 * submission.
 */
import type { Hash } from "../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../platform/context.ts"
import { traceOfPayment } from "../../platform/db/read-traces.ts"
import { traced } from "../../platform/tracing/trace.ts"
import type { Group, Part, Sellable } from "./sellable.ts"

/**
 * Settles a group in the trace of its resource, if the resource has one. Otherwise each payment has its own trace (see
 * {@link tracePayment}).
 */
export async function traceGroup<T>(
  ctx: Context,
  sellable: Sellable,
  { resourceId }: Group,
  work: () => Promise<T>,
): Promise<T> {
  const parent = (ctx.tracing && (await sellable.traceOf?.(ctx, resourceId))) ?? undefined
  return await traced(ctx, "settle", { parent, attributes: { "sluice.resource.id": resourceId } }, work)
}

/**
 * Runs `work` in the trace of a payment that these transactions paid, unless a trace is active already. A payment
 * without a known trace starts its own.
 */
export async function tracePayment<T>(
  ctx: TxContext,
  name: string,
  { owner, network }: Part,
  { id, hashes }: { id: string | undefined; hashes: readonly Hash[] },
  work: () => Promise<T>,
): Promise<T> {
  if (!ctx.tracing || ctx.tracing.active()) return await work()
  const parent = await traceOfPayment(ctx.db, { id, resourceId: owner.resource_id, hashes })
  const attributes = { "sluice.network": network.name, "sluice.resource.id": owner.resource_id }
  return await traced(ctx, name, { parent, attributes }, work)
}
