/** The part of a receipt that could change later, written in the settling transaction as JSON. */
import type { Address } from "../chain/hex.ts"

/** A transfer that paid; `deposit` is the id of the address's row. Amounts in base units, as text. */
interface DraftTransfer {
  deposit?: number
  txHash: string
  blockHash: string
  blockNumber: number
  k: number
  from: Address
  to: Address
  amount: string
}

export interface ReceiptDraft {
  payer: Address
  /** The merchant's name. */
  merchant?: string
  /** At most 64, those with the largest amounts; null or absent in a reversal. */
  transfers?: DraftTransfer[] | null
  splits?: { to: Address; amount: string }[] | null
  what?: { description?: string | null; metadata?: unknown; answers?: unknown } | null
  escrow?: { address: Address; authId: string }
}
