/** What the rows of a filtered list add up to, by state and token. */

import { fromUnits, toUnits } from "../../ui/amounts.ts"
import { read } from "../api/client.ts"
import { networkTitle } from "../api/facts.ts"
import { useLive } from "../api/live.ts"
import type { TransactionTotals } from "../api/types.ts"
import { Money } from "./money.tsx"
import { Status, stateOf } from "./status.tsx"

type Sum = TransactionTotals["data"][number]

/** One sum for each word and token: the API's states `granted` and `confirmed` are both "Paid". */
function byWord(sums: readonly Sum[]): Sum[] {
  const found = new Map<string, Sum>()
  for (const sum of sums) {
    const key = [stateOf(sum.status)[1], sum.chain, sum.token].join(" ")
    const before = found.get(key)
    const decimals = sum.decimals ?? 0
    found.set(
      key,
      before
        ? {
            ...before,
            count: before.count + sum.count,
            amount: fromUnits(toUnits(before.amount, decimals) + toUnits(sum.amount, decimals), decimals),
          }
        : sum,
    )
  }
  return [...found.values()]
}

export function Totals({ query }: { query: Record<string, unknown> }) {
  const { data: totals } = useLive(
    ["totals", query],
    signal => read<TransactionTotals>("/api/console/transactions/totals", query, signal),
    { keep: true, every: 15_000 },
  )
  // Without them the list is as good as before, so a failure takes no room.
  if (!totals || totals.total === 0) return null
  if (totals.totalIsLeast)
    return (
      <p className="totals quiet" role="note">
        More than {totals.total.toLocaleString()} match, too many to add up here. Choose a shorter time, or export them
        as CSV.
      </p>
    )
  const hasNetworks = new Set(totals.data.map(({ chain }) => chain)).size > 1
  return (
    <dl className="totals num" aria-label="Totals">
      {byWord(totals.data).map(({ status, count, amount, currency, token, chain }) => (
        <div key={`${status} ${chain} ${token}`}>
          <dt>
            <Status state={status} /> <span className="quiet">{count.toLocaleString()}</span>
            {hasNetworks && <span className="quiet"> on {networkTitle(chain)}</span>}
          </dt>
          <dd>
            <Money amount={amount} currency={currency} />
          </dd>
        </div>
      ))}
    </dl>
  )
}
