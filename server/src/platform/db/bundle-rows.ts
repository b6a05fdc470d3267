/** The rows of proxy bundles; a part of `schema.ts`. */
import type { JSONColumnType } from "kysely"
import type { Optional } from "./columns.ts"

export interface Bundles {
  id: string
  merchant_id: string
  chain_id: number
  slug: string
  name: string
  description: string | null
  origin_url: string
  currency: string
  split_id: Optional<string>
  active: boolean
  listed: boolean
  openapi: JSONColumnType<Record<string, unknown> | null, string | null, string | null>
  openapi_url: string | null
  version: number
  created_at: Date
  updated_at: Date
}

export interface BundleRoutes {
  bundle_id: string
  n: number
  method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE"
  path: string
  shape: string
  price: bigint
  description: string | null
}

export interface BundleHeaders {
  bundle_id: string
  name: string
  sealed: string
}

export interface BundleFailures {
  payment_id: string
  bundle_id: string
  method: string
  path: string
  reason: string
  attempts: number
  failed_at: Date
  served_at: Optional<Date>
}
