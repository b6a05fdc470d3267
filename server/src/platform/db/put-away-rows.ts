/** The rows of checkouts that were put away; a part of `schema.ts`. */
import type { Generated, JSONColumnType } from "kysely"
import type { Optional } from "./columns.ts"

/** An unpaid checkout of long ago, with what is not the same for many. `deposits/put-away.ts` brings it back. */
export interface PutAway {
  /** The id of the checkout session. */
  id: string
  merchant_id: string
  chain_id: number
  terms_id: bigint
  /** The receiving address and the salt of its terms, as bytes. */
  address: Buffer
  salt: Buffer
  open_after_s: bigint
  /** The block up to which it is known that nothing came. */
  watched_number: bigint
  created_at: Date
  expires_at: Date
  updated_at: Date
  /** When its balance is read next. */
  check_at: Date
  /** Hashes that were submitted to it and refused. */
  submissions: JSONColumnType<Record<string, unknown>[] | null, string | null, string | null>
}

/** What many checkouts that were put away have in common: the other columns of their rows, as the database has them. */
export interface PutAwayTerms {
  id: Generated<bigint>
  merchant_id: string
  link_id: Optional<string>
  product_id: Optional<string>
  recipient_set_id: Optional<bigint>
  session: JSONColumnType<Record<string, unknown>>
  deposit: JSONColumnType<Record<string, unknown>>
  /** SHA-256 of `session` and `deposit`. */
  hash: Buffer
}
