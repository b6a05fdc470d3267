/** The steps of payouts in the traces of their payments: signed, broadcast, and what the chain made of them. */
import type { TxContext } from "../context.ts"
import type { Row } from "../db/schema.ts"
import { type Attributes, unixMs } from "../tracing/trace.ts"

/** What a step is of. */
type Traced = Pick<Row<"payouts">, "id" | "kind" | "payment_id" | "escrow_id" | "traceparent">

/** A step of payouts, each with what is particular about it. */
interface Step {
  name: string
  kind?: "client"
  startMs: number
  attributes: Attributes
}

/** Adds a step of each of these payouts that has a trace, once the transaction around it commits. `particular`: its own facts, and its error where it failed. */
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
