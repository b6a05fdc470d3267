/** The share of a recipient in a payment. */
import type { Hash } from "../../platform/chain/hex.ts"

/** A disbursement as `checkout.session.completed` lists it. */
export interface Share {
  address: string
  amount: string
  percent: number
  /** Null until the share is mined, and if it failed. */
  txHash: Hash | null
}
