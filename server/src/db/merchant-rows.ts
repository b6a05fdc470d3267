/** The rows of merchants and of the addresses that receive their money; a part of `schema.ts`. */
import type { Generated } from "kysely"
import type { Address } from "../chain/hex.ts"
import type { Optional } from "./schema.ts"

export interface Merchants {
  id: string
  iss: string
  sub: string
  name: string
  email: string | null
  wallet_lock: Generated<boolean>
  created_at: Date
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
