/** The rows of merchants, of their payout addresses, and of how their pages look; a part of `schema.ts`. */
import type { Generated, JSONColumnType } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { Optional } from "./columns.ts"

export interface Merchants {
  id: string
  iss: string
  sub: string
  name: string
  email: string | null
  wallet_lock: Generated<boolean>
  created_at: Date
  /** Who signs returns; null: the mode's default. */
  approver: Optional<"wallet" | "service">
}

export interface Invitations {
  iss: string
  sub: string
  created_at: Date
}

export interface PayoutAddresses {
  merchant_id: string
  chain_id: number
  address: Address
  since: Generated<Date>
  pending_address: Optional<Address>
  pending_at: Optional<Date>
}

export interface Branding {
  merchant_id: string
  accent_color: Optional<string>
  allowed_origins: JSONColumnType<string[], string | undefined, string>
  logo: Optional<Uint8Array>
  logo_type: Optional<string>
  logo_hash: Optional<string>
}

/** A payout wallet that signed when its merchant switched the wallet lock on. */
export interface WalletProofs {
  merchant_id: string
  chain_id: number
  address: Address
  /** Whether its key signed, which is the same on every network; otherwise its contract did, on this network. */
  by_key: boolean
  proven_at: Date
}
