/** The audit log in SQL. */
import type { TxContext } from "../../platform/context.ts"
import { timeAt } from "../../platform/http/time.ts"
import type { AuditFilters } from "./schema.ts"

/** A merchant's matching entries, unordered; throws `VALIDATION_ERROR` if a time in the filter does not exist. */
export function entriesOf(ctx: TxContext, merchantId: string, filter: AuditFilters) {
  const { actor, actorKind, action, object, from, to } = filter
  let query = ctx.db.selectFrom("audit_entries").selectAll().where("merchant_id", "=", merchantId)
  if (actor !== undefined) query = query.where("actor_id", "=", actor)
  if (actorKind !== undefined) query = query.where("actor_kind", "=", actorKind)
  if (action !== undefined) query = query.where("action", "=", action)
  // The log stores addresses in lower case, but callers may use any case.
  if (object !== undefined) query = query.where("object_id", "in", [...new Set([object, object.toLowerCase()])])
  if (from !== undefined) query = query.where("at", ">=", timeAt("from", from))
  if (to !== undefined) query = query.where("at", "<", timeAt("to", to))
  return query
}
