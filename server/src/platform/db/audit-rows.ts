/** The rows of the audit log; a part of `schema.ts`. */
import type { Generated, JSONColumnType } from "kysely"

/** Only triggers write these rows. */
export interface AuditEntries {
  merchant_id: string
  at: Generated<Date>
  /** In the order in which entries were written. */
  n: Generated<bigint>
  id: Generated<string>
  actor_kind: "console" | "api_key" | "subscriber" | "operator" | "service"
  actor_id: string | null
  actor_issuer: string | null
  action: string
  object_id: string
  chain_id: number | null
  /** Columns and their values: those that changed, or all columns of a row that was made or deleted. */
  before: JSONColumnType<Record<string, unknown> | null>
  after: JSONColumnType<Record<string, unknown> | null>
  address: string | null
  user_agent: string | null
  route: string | null
  request_id: string | null
}
