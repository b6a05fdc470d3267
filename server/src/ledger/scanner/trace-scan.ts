/** Adds a scan round's findings about each payment to its trace. */
import type { NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { tracedTransfers } from "../../platform/db/read-traces.ts"
import { unixMs } from "../../platform/tracing/trace.ts"
import type { Changed } from "./read-unfinal-blocks.ts"

/** How many transfers of a round are traced. The rest of a flood of dust is not traced. */
const SPANS_PER_ROUND = 200

/**
 * Adds a span to the trace of each payment with a transfer that this round saw or changed. Call this in the round's
 * transaction.
 */
export async function traceScan(
  ctx: TxContext,
  network: NetworkInfo,
  changed: readonly Pick<Changed, "id">[],
  stored: readonly bigint[],
  startMs: number,
): Promise<void> {
  const { tracing } = ctx
  if (!tracing) return
  const ids = changed.map(({ id }) => id)
  if (ids.length + stored.length === 0) return
  const found = await tracedTransfers(ctx.db, ids, stored, SPANS_PER_ROUND)
  const spans = found.map(({ tx_hash, state, resource_id, traceparent }) => {
    const attributes = {
      "sluice.network": network.name,
      "sluice.resource.id": resource_id,
      "sluice.transaction.hash": tx_hash,
      "sluice.transfer.state": state,
    }
    return tracing.start("scan", { parent: traceparent, startMs, attributes })
  })
  const endMs = unixMs()
  ctx.onCommit(() => {
    for (const span of spans) span.end(endMs)
  })
}
