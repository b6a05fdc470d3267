/** Adds the steps of payouts to the traces of their payments: signed, broadcast, confirmed. */
import type { TxContext } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { unixMs } from "../../platform/tracing/trace.ts"
import type { Attributes } from "../../platform/tracing/tracing.ts"
import { callsOf } from "./read-batch-calls.ts"

/** The payout columns that a step needs. */
export type Traced = Pick<Row<"payouts">, "id" | "kind" | "payment_id" | "escrow_id" | "traceparent">

/** A step that several payouts share. */
interface Step {
  name: string
  kind?: "client"
  startMs: number
  attributes: Attributes
}

/**
 * Adds a step for each of these payouts that has a trace, once the surrounding transaction commits. `particular`
 * returns a payout's own attributes, and its error if it failed.
 */
export function tracePayouts<P extends Traced>(
  { tracing, onCommit }: Pick<TxContext, "tracing" | "onCommit">,
  { attributes, ...step }: Step,
  payouts: readonly P[],
  particular: (payout: P) => { attributes: Attributes; error?: string | undefined },
): void {
  if (!tracing) return
  const endMs = unixMs()
  const spans = payouts.flatMap(payout => {
    if (payout.traceparent === null) return []
    const { attributes: own, error } = particular(payout)
    const facts = {
      "sluice.payout.id": payout.id,
      "sluice.payout.kind": payout.kind,
      "sluice.payment.id": payout.payment_id ?? undefined,
      "sluice.resource.id": payout.escrow_id ?? undefined,
      ...attributes,
      ...own,
    }
    const span = tracing.start(step.name, { ...step, parent: payout.traceparent, attributes: facts })
    if (error !== undefined) span.fail(error)
    return [span]
  })
  onCommit(() => {
    for (const span of spans) span.end(endMs)
  })
}

/**
 * Returns these payouts with each batch replaced by its calls, because each call has its payment's trace and a batch
 * has none. Queries nothing if tracing is off.
 */
export async function withoutBatches<P extends Traced>(ctx: TxContext, payouts: readonly P[]): Promise<P[]> {
  if (!ctx.tracing) return [...payouts]
  const calls = await callsOf(ctx, payouts)
  return payouts.flatMap(payout => {
    const ofBatch = calls.get(payout.id) ?? []
    const asCalls = ofBatch.map(({ id, kind, payment_id, escrow_id, traceparent }) => ({
      ...payout,
      id,
      kind,
      payment_id,
      escrow_id,
      traceparent,
    }))
    return asCalls.length > 0 ? asCalls : [payout]
  })
}
