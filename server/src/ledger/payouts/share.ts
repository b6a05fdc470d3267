/** A recipient's share in a payment. */
import type { Hash } from "../../platform/chain/hex.ts"

/** A share as `checkout.session.completed` lists it. */
export interface Share {
  address: string
  amount: string
  percent: number
  /** Null until the share is mined, or if it failed. */
  txHash: Hash | null
}
