/** Matches waiting money with its open payment, so that a payment keeps its id while its money changes. Pure. */
import type { Row } from "../../platform/db/schema.ts"
import type { WaitingGroup } from "./sellable.ts"

/** Waiting money of one sender in one token at one address, and the earlier payment of that money, if there is one. */
export interface Matched {
  group: WaitingGroup
  known: Row<"payments"> | undefined
}

/**
 * Matches each group with at most one of these open and reversed payments. Open payments for the same reason come
 * first, then reversed ones that claim some of the group, then open ones for another reason. Passes once over each
 * list, because strangers can fill both lists.
 */
export function matchOpen(groups: readonly WaitingGroup[], payments: readonly Row<"payments">[]): Matched[] {
  const open = payments.filter(({ status }) => status !== "reversed")
  const reversed = new Map(payments.filter(({ status }) => status === "reversed").map(row => [row.id, row]))
  const byReason = Map.groupBy(open, row => `${placeOf(row, row.payer, row.exception)} ${row.exception}`)
  const byPlace = Map.groupBy(open, row => placeOf(row, row.payer, row.exception))
  const taken = new Set<string>()
  const take = (row: Row<"payments"> | undefined) => {
    if (row) taken.add(row.id)
    return row
  }
  const next = (rows: readonly Row<"payments">[] = []) => take(rows.find(({ id }) => !taken.has(id)))
  const claiming = ({ transfers }: WaitingGroup) => {
    const rows = [...new Set(transfers.map(row => row.payment_id ?? ""))].flatMap(id => reversed.get(id) ?? [])
    const [first] = transfers
    const own = rows.filter(row => row.payer === first?.from_address && row.token === first.token)
    return next(own.sort((a, b) => (a.id < b.id ? -1 : 1)))
  }
  const exact = groups.map(group => ({
    group,
    known: next(byReason.get(`${placeOfGroup(group)} ${group.exception}`)) ?? claiming(group),
  }))
  return exact.map(({ group, known }) => ({ group, known: known ?? next(byPlace.get(placeOfGroup(group))) }))
}

/** Returns the place of a payment's money. Each transaction without a buyer is a separate payment. */
const placeOf = (
  { token, deposit_id, tx_hash }: Pick<Row<"payments">, "token" | "deposit_id" | "tx_hash">,
  payer: string,
  exception: Row<"payments">["exception"] | undefined,
): string => `${payer} ${token} ${deposit_id} ${exception === "no_buyer" ? tx_hash : ""}`

function placeOfGroup({ transfers, exception }: WaitingGroup): string {
  const [first] = transfers
  if (!first) throw new Error("a payment has no transfer")
  return placeOf(first, first.from_address, exception)
}
