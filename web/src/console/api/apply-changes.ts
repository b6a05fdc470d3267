/** What a change does to what is shown: rows change in their place at once; what must be read again is, at most each five seconds. */
import type { Query, QueryClient } from "@tanstack/react-query"
import type { Change } from "./stream.ts"

/** What shows an object of a kind, by the first part of its key: lists first, then figures and whole things. */
const shownBy: Record<string, { lists: string[]; others: string[] }> = {
  checkout: { lists: ["checkouts"], others: ["checkout", "story", "overview"] },
  payment: {
    lists: ["transactions", "/api/console/transactions"],
    others: [
      "needs",
      "story",
      "transaction",
      "checkout",
      "overview",
      "totals",
      "payer",
      "/api/console/payers",
      "balances",
      "link",
    ],
  },
  payout: {
    lists: ["/api/console/payouts", "transactions", "/api/console/transactions"],
    others: ["payout", "story", "balances", "overview", "totals"],
  },
  refund: { lists: [], others: ["checkout", "story", "overview"] },
  subscription: { lists: ["/api/console/subscriptions"], others: ["subscription", "payer"] },
  invoice: { lists: ["/api/console/invoices"], others: ["subscription", "invoice"] },
  delivery: { lists: ["deliveries"], others: ["delivery", "story", "health"] },
  webhook: { lists: [], others: ["webhooks", "webhook"] },
  payout_address: { lists: [], others: ["settings"] },
}
/** These are of one thing, by the second part of the key: another's change is not theirs. */
const ofOne: ReadonlySet<unknown> = new Set([
  "checkout",
  "story",
  "transaction",
  "payout",
  "subscription",
  "invoice",
  "delivery",
  "webhook",
  "payer",
  "link",
])
const EVERY_MS = 5_000

interface Rows {
  data: { id: string }[]
}

const isRows = (data: unknown): data is Rows => Array.isArray((data as Rows | undefined)?.data)

/** Applies changes to the cache of a page. */
export function changesOn(queries: QueryClient) {
  const readAt = new Map<string, number>()
  const waiting = new Map<string, ReturnType<typeof setTimeout>>()
  /** At once where it is long ago, else when five seconds are over: the requests of a busy minute stay within a person's limit. */
  const readAgain = ({ queryHash, queryKey }: Query): void => {
    if (waiting.has(queryHash)) return
    const read = () => {
      waiting.delete(queryHash)
      readAt.set(queryHash, Date.now())
      void queries.invalidateQueries({ queryKey, exact: true })
    }
    const wait = (readAt.get(queryHash) ?? 0) + EVERY_MS - Date.now()
    if (wait <= 0) read()
    else waiting.set(queryHash, setTimeout(read, wait))
  }
  const onChange = (change: Change): void => {
    const shown = shownBy[change.kind]
    if (!shown) return
    const text = JSON.stringify(change)
    for (const query of queries.getQueryCache().getAll()) {
      const [first, second] = query.queryKey
      if (shown.lists.includes(first as string)) {
        if (!changeRow(queries, query, change)) readAgain(query)
      } else if (shown.others.includes(first as string)) {
        if (!ofOne.has(first) || text.includes(String(second))) readAgain(query)
      }
    }
  }
  return { onChange, onReset: () => void queries.invalidateQueries() }
}

/** Whether the row is in the list, and was changed in its place. A list that is filtered by what changed is read again. */
function changeRow(queries: QueryClient, { queryKey, state }: Query, { objectId, row }: Change): boolean {
  if (!row || !isRows(state.data)) return false
  const { data } = state.data
  const old = data.find(({ id }) => id === objectId)
  if (!old) return false
  const [, filter] = queryKey
  if (typeof filter === "object" && filter !== null && ("status" in filter || "state" in filter)) return false
  queries.setQueryData(queryKey, {
    ...state.data,
    data: data.map(each => (each === old ? { ...each, ...row, id: each.id } : each)),
  })
  return true
}
