/** What waits for a decision. */
import type { Payment } from "../api/types.ts"

export type Waiting = Pick<
  Payment,
  "id" | "amount" | "currency" | "exception" | "payer" | "returnAddress" | "surplus" | "status"
>

/** What waits: all of it, or the surplus of what is paid. */
export const waitingAmount = ({ amount, surplus, status }: Waiting): string =>
  status === "granted" && surplus?.amount ? surplus.amount : amount
