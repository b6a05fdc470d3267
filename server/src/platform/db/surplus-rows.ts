/** The rows of surpluses: what overpayments brought beyond their price. */
import type { Address } from "../chain/hex.ts"
import type { Optional } from "./columns.ts"

/** The surplus of a payment; the payment's status says whether it counts. */
export interface Surpluses {
  payment_id: string
  transfer_id: bigint
  deposit_id: bigint
  token: Address
  amount: bigint
  state: "open" | "accepted" | "returned"
  returned_at: Optional<Date>
  returned_to: Optional<Address>
}
