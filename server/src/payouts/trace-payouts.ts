/** The steps of payouts in the traces of their payments: signed, broadcast, confirmed. */
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { type Attributes, unixMs } from "../tracing/trace.ts"

/** The payout of a step. */
type Traced = Pick<Row<"payouts">, "id" | "kind" | "payment_id" | "escrow_id" | "traceparent">

/** A step that several payouts share. */
interface Step {
  name: string
  kind?: "client"
  startMs: number
  attributes: Attributes
}

/**
 * Adds a step for each of these payouts that has a trace, once the transaction around it commits. `particular` returns
 * a payout's own attributes, and its error if it failed.
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
