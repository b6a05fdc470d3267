/** Payments that need a decision. */
import type { Payment } from "../api/types.ts"

export type Waiting = Pick<
  Payment,
  | "id"
  | "description"
  | "amount"
  | "currency"
  | "exception"
  | "payer"
  | "returnAddress"
  | "surplus"
  | "status"
  | "buys"
  | "acceptable"
>

/** How much needs a decision: all of it, or the surplus of a payment that counts. */
export const waitingAmount = ({ amount, surplus, status }: Waiting): string =>
  status === "granted" && surplus?.amount ? surplus.amount : amount
