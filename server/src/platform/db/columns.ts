/** Why payments need a decision. */
import type { Row } from "./schema.ts"

export type PaymentException = NonNullable<Row<"checkout_sessions">["exception"]>
/** Why a payment needs a decision. The other reasons concern the sender, and are not exceptions of a checkout. */
export type WaitingFor = NonNullable<Row<"payments">["exception"]>

/** All of them, in the order of the documents. */
export const exceptions: WaitingFor[] = [
  "underpaid",
  "overpaid",
  "late",
  "duplicate",
  "wrong_asset",
  "sanctioned",
  "no_buyer",
]
