/** The rows of paywalls; a part of `schema.ts`. */
import type { Generated, JSONColumnType } from "kysely"
import type { Optional } from "./columns.ts"

export interface Paywalls {
  id: string
  merchant_id: string
  chain_id: number
  name: string
  price: bigint
  currency: string
  description: string | null
  content_type: string
  content_data: JSONColumnType<Record<string, unknown> | null, string | null, string | null>
  content_url: string | null
  pricing_model: string
  access_duration_s: bigint | null
  slug: string | null
  active: boolean
  /** Whether `/.well-known/x402` lists it. */
  listed: Generated<boolean>
  /** Subscribers of this product have access. */
  subscription_product_id: Optional<string>
  created_at: Date
  updated_at: Date
  split_id: Optional<string>
}

export interface PaywallVersions {
  paywall_id: string
  n: number
  price: bigint
  active: boolean
  deposit_id: bigint
  from_at: Date
  until_at: Optional<Date>
}
