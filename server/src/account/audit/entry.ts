/** Formats audit entries for the API, with the same names and formats as the API's other routes. */
import { checksummed } from "../../platform/chain/hex.ts"
import { chainName, type NetworkInfo } from "../../platform/chain/network-facts.ts"
import type { Row } from "../../platform/db/schema.ts"
import { formatAmount } from "../../platform/money/amount.ts"
import { percentOf } from "../../platform/money/percent.ts"

/** The columns of a row, as the log stores them. */
export type Fields = Record<string, unknown>

/** Columns whose API name is not simply the column's name in camel case. */
const names: Record<string, string> = {
  chain_id: "chain",
  access_duration_s: "accessDuration",
  percent_e4: "percent",
  sealed: "secret",
  payout: "payoutId",
}
const nameOf = (column: string): string =>
  names[column] ?? column.replaceAll(/_([a-z])/g, (_, letter: string) => letter.toUpperCase())

const addresses = ["address", "pending_address", "recipient", "returned_to"]

/** Formats an entry. Amounts are decimals if the entry's network is one of `networks`, otherwise base units. */
export function entryOf(networks: readonly NetworkInfo[], row: Row<"audit_entries">) {
  const decimals = networks.find(each => each.chainId === row.chain_id)?.token.decimals
  return {
    id: `aud_${row.id.replaceAll("-", "")}`,
    at: row.at.toISOString(),
    actor: { kind: row.actor_kind, id: row.actor_id, issuer: row.actor_issuer },
    action: row.action,
    object: { type: row.action.split(".")[0] ?? "", id: objectOf(row) },
    before: row.before && shown(row.before, decimals),
    after: row.after && shown(row.after, decimals),
    address: row.address,
    userAgent: row.user_agent,
    route: row.route,
    requestId: row.request_id,
  }
}

const objectOf = ({ action, object_id }: Row<"audit_entries">): string =>
  action.startsWith("wallet_proof.") ? checksummed(object_id) : object_id

/** Formats these columns under their API names. */
export const shown = (fields: Fields, decimals: number | undefined): Fields =>
  Object.fromEntries(Object.entries(fields).map(([column, value]) => [nameOf(column), formOf(column, value, decimals)]))

function formOf(column: string, value: unknown, decimals: number | undefined): unknown {
  if (value === null) return null
  // A list that is too long is stored as text that is cut off at the end.
  if ((column === "recipients" || column === "routes") && Array.isArray(value))
    return value.map(each => shown(each as Fields, decimals))
  if (column === "price" || column === "amount")
    return decimals === undefined ? `${value}` : formatAmount(BigInt(`${value}`), decimals)
  if (column === "chain_id") return chainName(value as number)
  if (column === "percent_e4") return percentOf(value as number)
  if (column.endsWith("_at")) return timeOf(value as string)
  return addresses.includes(column) ? checksummed(value as string) : value
}

/**
 * A database time in the API's format. A time that `Date` can't parse (a five-digit year, infinity) stays unchanged.
 */
function timeOf(text: string): string {
  const at = new Date(text)
  return Number.isNaN(at.getTime()) ? text : at.toISOString()
}
