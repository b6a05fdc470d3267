/** Checkouts: one payment each, made by a server or here. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { GET, taken } from "../api/client.ts"
import type { Checkout, Page } from "../api/types.ts"
import { Chips } from "../ui/chips.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { FindInput } from "../ui/find-input.tsx"
import { Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"

export interface CheckoutsSearch {
  status?: Checkout["status"]
  exception?: Checkout["exception"] & string
  q?: string
}

const states = [
  ["pending", "Waiting"],
  ["confirmed", "Paid"],
  ["expired", "Expired"],
  ["refunded", "Refunded"],
] as const
const exceptions = [
  ["underpaid", "Partly paid"],
  ["overpaid", "Overpaid"],
  ["late", "Paid late"],
] as const

const columns: Column<Checkout>[] = [
  {
    head: "Amount",
    width: 12,
    cell: ({ amount, amountReceived, currency, exception }) =>
      exception === "underpaid" ? (
        <Money amount={amountReceived} of={amount} currency={currency} />
      ) : (
        <Money amount={amount} currency={currency} />
      ),
  },
  { head: "State", width: 8, cell: row => <Status state={row.status} why={row.exception} /> },
  {
    head: "For",
    width: 20,
    cell: ({ description, slug, productId, id }) => (
      <div className="cut">{description ?? slug ?? productId ?? <span className="quiet mono">{id}</span>}</div>
    ),
  },
  { head: "E-mail", width: 12, wide: true, cell: row => <div className="cut quiet">{row.customerEmail ?? "–"}</div> },
  { head: "Created", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

export function Checkouts() {
  const { status, exception, q } = useSearch({ strict: false }) as CheckoutsSearch
  const navigate = useNavigate()
  const query = { ...(status ? { status } : {}), ...(exception ? { exception } : {}), ...(q ? { q } : {}) }
  const set = (next: CheckoutsSearch) => void navigate({ to: "/checkouts", search: next as never, replace: true })
  const list = useList<Checkout>(
    ["checkouts", query],
    (part, signal) =>
      taken(
        GET("/api/console/checkouts", {
          params: { query: { ...query, ...part } },
          signal,
        }),
      ) as Promise<Page<Checkout>>,
  )
  const words = [
    status && `the state “${stateOf(status)[1]}”`,
    exception && `the exception “${stateOf(exception)[1]}”`,
    q && `“${q}”`,
  ].filter(Boolean)
  return (
    <>
      <PageHead
        title="Checkouts"
        request={{ path: "/api/console/checkouts", query }}
        actions={
          <Button variant="filled" component={Link} to="/checkouts/new">
            Create checkout
          </Button>
        }
      />
      <div className="chips">
        <Chips
          name="State"
          choices={states}
          value={status as never}
          set={each => set({ ...query, status: each } as never)}
        />
        <span className="bar-line" aria-hidden="true" />
        <Chips
          name="Exception"
          choices={exceptions}
          value={exception as never}
          set={each => set({ ...query, exception: each } as never)}
        />
        <FindInput
          label="E-mail, id, hash, address, or a value of yours"
          value={q ?? ""}
          set={each => set({ ...query, q: each || undefined } as never)}
        />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="checkouts"
          columns={columns}
          list={list}
          to={({ id }) => `/checkouts/${id}`}
          filtered={words.length > 0 ? { words: words.join(" and "), clear: () => set({}) } : undefined}
          empty={
            <>
              <h2>No checkouts yet</h2>
              <p>A checkout is one payment: an amount, a page for the payer, and an event when it is paid.</p>
              <Button variant="filled" component={Link} to="/checkouts/new">
                Create checkout
              </Button>
            </>
          }
        />
      </section>
    </>
  )
}
