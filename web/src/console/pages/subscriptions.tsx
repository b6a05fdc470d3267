/** Subscriptions and their invoices: two lists, each with a CSV. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { chosenMerchant } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import type { Invoice, Subscription } from "../api/types.ts"
import { useKeys } from "../shell/keys.ts"
import { Chips } from "../ui/chips.tsx"
import { Hash } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Day, Time } from "../ui/time.tsx"

const every = (count: number, unit: string): string => (count === 1 ? `each ${unit}` : `every ${count} ${unit}s`)

/** How often it is paid: `each month`, `every 3 months`. */
export const rhythmText = ({ billingCount, billingInterval }: Pick<Subscription, "billingCount" | "billingInterval">) =>
  every(billingCount, billingInterval)

const columns: Column<Subscription>[] = [
  {
    head: "Subscriber",
    width: 18,
    cell: row =>
      row.customerEmail ? <span className="strong cut">{row.customerEmail}</span> : <Hash value={row.payer} />,
  },
  { head: "State", width: 8, cell: row => <Status state={row.status} why={row.cancelReason} /> },
  { head: "Paid", width: 8, cell: row => <span className="second">{rhythmText(row)}</span> },
  { head: "Paid until", width: 8, wide: true, cell: row => <Day at={row.paidUntil} /> },
  {
    head: "Then",
    width: 12,
    wide: true,
    cell: row => (
      <span className="quiet">
        {row.endedAt ? "ended" : row.cancelAtPeriodEnd ? "it ends" : row.pausedAt ? "paused" : "the next invoice"}
      </span>
    ),
  },
  { head: "Since", width: 8, right: true, cell: row => <Time at={row.startedAt} /> },
]

export const invoiceColumns: Column<Invoice>[] = [
  { head: "Amount", width: 10, cell: row => <Money amount={row.amount} currency={row.currency} /> },
  { head: "State", width: 8, cell: row => <Status state={row.status === "open" ? "due" : row.status} /> },
  { head: "Number", width: 4, wide: true, cell: row => <span className="num">{row.sequence}</span> },
  {
    head: "For",
    width: 16,
    cell: row => (
      <span className="second">
        <Day at={row.periodStart} /> – <Day at={row.periodEnd} />
      </span>
    ),
  },
  {
    head: "Paid",
    width: 8,
    wide: true,
    cell: row => (row.paidAt ? <Time at={row.paidAt} /> : <span className="quiet">–</span>),
  },
  { head: "Due", width: 8, right: true, cell: row => <Time at={row.dueAt} /> },
]

const states = ["active", "payment_due", "past_due", "paused", "canceled"] as const
const invoiceStates = [
  ["open", "Due"],
  ["paid", "Paid"],
  ["unpaid", "Unpaid"],
  ["void", "Void"],
] as const

export function Subscriptions() {
  const { status } = useSearch({ strict: false }) as { status?: Subscription["status"] }
  const navigate = useNavigate()
  const query = status ? { status } : {}
  const path = "/api/console/subscriptions"
  const list = usePages<Subscription>(path, query)
  const csv = pathOf({ path: `${path}.csv`, query: { ...query, merchant: chosenMerchant.get() ?? undefined } })
  useKeys({ e: () => location.assign(csv) })
  const set = (next?: string) =>
    void navigate({ to: "/subscriptions", search: (next ? { status: next } : {}) as never, replace: true })
  return (
    <>
      <PageHead
        title="Subscriptions"
        request={{ path, query }}
        actions={
          <>
            <Button component={Link} to="/invoices">
              All invoices
            </Button>
            <LinkButton href={csv}>Export as CSV</LinkButton>
          </>
        }
      />
      <div className="chips">
        <Chips name="State" choices={states.map(each => [each, stateOf(each)[1]])} value={status} set={set} />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="subscriptions"
          columns={columns}
          list={list}
          to={({ id }) => `/subscriptions/${id}`}
          filtered={status ? { words: `the state “${stateOf(status)[1]}”`, clear: () => set() } : undefined}
          empty={
            <>
              <h2>No subscriptions yet</h2>
              <p>
                A product that is paid each month begins one for whoever buys it. Nobody can charge a wallet, so each
                renewal is an invoice that the subscriber pays.
              </p>
              <Button variant="filled" component={Link} to="/products/new">
                Create product
              </Button>
            </>
          }
        />
      </section>
    </>
  )
}

export function Invoices() {
  const { status } = useSearch({ strict: false }) as { status?: Invoice["status"] }
  const navigate = useNavigate()
  const query = status ? { status } : {}
  const path = "/api/console/invoices"
  const list = usePages<Invoice>(path, query)
  const csv = pathOf({ path: `${path}.csv`, query: { ...query, merchant: chosenMerchant.get() ?? undefined } })
  useKeys({ e: () => location.assign(csv) })
  const set = (next?: string) =>
    void navigate({ to: "/invoices", search: (next ? { status: next } : {}) as never, replace: true })
  return (
    <>
      <PageHead
        title="Invoices"
        up={{ to: "/subscriptions", name: "Subscriptions" }}
        request={{ path, query }}
        actions={<LinkButton href={csv}>Export as CSV</LinkButton>}
      />
      <div className="chips">
        <Chips name="State" choices={invoiceStates} value={status as never} set={set} />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="invoices"
          columns={invoiceColumns}
          list={list}
          to={({ id }) => `/invoices/${id}`}
          filtered={
            status
              ? { words: `the state “${invoiceStates.find(([each]) => each === status)?.[1]}”`, clear: () => set() }
              : undefined
          }
          empty={<p>No invoice was made yet. The first one is made three days before the second period begins.</p>}
        />
      </section>
    </>
  )
}
