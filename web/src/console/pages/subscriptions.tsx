/** Subscriptions and their invoices: two lists, each with a CSV. */
import { Button } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { chosenMerchant, read } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { retries } from "../api/live.ts"
import { useOverview } from "../api/overview.ts"
import type { Invoice, Page, Product, Subscription } from "../api/types.ts"
import { useKeys } from "../shell/keys.ts"
import { Chips } from "../ui/chips.tsx"
import { Hash } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { FindInput } from "../ui/find-input.tsx"
import { IdLink } from "../ui/linked.tsx"
import { Money } from "../ui/money.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Day, Time } from "../ui/time.tsx"

const every = (count: number, unit: string): string => (count === 1 ? `each ${unit}` : `every ${count} ${unit}s`)

/** How often it is paid: `each month`, `every 3 months`. */
export const rhythmText = ({ billingCount, billingInterval }: Pick<Subscription, "billingCount" | "billingInterval">) =>
  every(billingCount, billingInterval)

/** The products by their ids: what a subscription is for. The first hundred; others show their rhythm alone. */
const useProducts = () =>
  useQuery({
    queryKey: ["products", "names"],
    queryFn: async ({ signal }) => {
      const { data } = await read<Page<Product>>("/api/console/products", { limit: 100 }, signal)
      return new Map(data.map(each => [each.id, each]))
    },
    staleTime: 60_000,
    ...retries,
  })

/** What is paid, and how often. */
function Plan({ of }: { of: Subscription }) {
  const product = useProducts().data?.get(of.productId)
  return (
    <div className="cut">
      {product && `${product.name} `}
      <span className="quiet">
        {product && (
          <>
            · <Money amount={product.price} currency={product.currency} />{" "}
          </>
        )}
        {rhythmText(of)}
      </span>
    </div>
  )
}

const columns: Column<Subscription>[] = [
  {
    head: "Subscriber",
    width: 18,
    cell: row =>
      row.customerEmail ? <span className="strong cut">{row.customerEmail}</span> : <Hash value={row.payer} />,
  },
  { head: "State", width: 8, cell: row => <Status state={row.status} why={row.cancelReason} /> },
  { head: "For", width: 20, cell: row => <Plan of={row} /> },
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
  {
    head: "Invoice",
    width: 12,
    wide: true,
    cell: row => (
      <span className="num">
        {row.sequence} of <IdLink to="/subscriptions" id={row.subscriptionId} />
      </span>
    ),
  },
  {
    head: "Period",
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
  const { status, q } = useSearch({ strict: false }) as { status?: Subscription["status"]; q?: string }
  const navigate = useNavigate()
  const query = { ...(status ? { status } : {}), ...(q ? { q } : {}) }
  const path = "/api/console/subscriptions"
  const list = usePages<Subscription>(path, query)
  const csv = pathOf({ path: `${path}.csv`, query: { ...query, merchant: chosenMerchant.get() ?? undefined } })
  useKeys({ e: () => location.assign(csv) })
  const set = (more: { status?: string | undefined; q?: string | undefined }) => {
    const search = Object.fromEntries(Object.entries({ ...query, ...more }).filter(([, value]) => value))
    void navigate({ to: "/subscriptions", search: search as never, replace: true })
  }
  const words = [status && `the state “${stateOf(status)[1]}”`, q && `“${q}”`].filter(Boolean)
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
      <Figures />
      <div className="chips">
        <Chips
          name="State"
          choices={states.map(each => [each, stateOf(each)[1]])}
          value={status}
          set={each => set({ status: each })}
        />
        <FindInput
          label="E-mail, wallet or id"
          value={q ?? ""}
          set={each => set({ q: each })}
          isWhole={isWhole}
          hint="Enter the whole address or id."
        />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="subscriptions"
          columns={columns}
          list={list}
          to={({ id }) => `/subscriptions/${id}`}
          filtered={
            words.length > 0
              ? { words: words.join(" and "), clear: () => set({ status: undefined, q: undefined }) }
              : undefined
          }
          empty={
            <>
              <h2>No subscriptions yet</h2>
              <p>
                Whoever buys a product that is paid each month starts a subscription. Nobody can charge a wallet, so
                each renewal is an invoice that the subscriber pays.
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

const WHOLE = /^(0x[0-9a-fA-F]{40}|(sub|cs|inv)_[a-z0-9]{24}|[^@\s]+@[^@\s]+\.[^@\s]+)$/
const isWhole = (text: string): boolean => WHOLE.test(text)
const DAYS = 30

/** What subscriptions bring in a month, and how many came and went. */
function Figures() {
  const { data } = useOverview(DAYS)
  if (!data) return <div className="four figures" aria-hidden="true" />
  const { active, mrr, started, ended, churn } = data.subscriptions
  const figures: [string, ReactNode][] = [
    [
      "A month brings",
      mrr.length === 0
        ? "–"
        : mrr.map(each => (
            <div key={`${each.chain}${each.token}`}>
              <Money size="figure" amount={each.amount} currency={each.currency} />
            </div>
          )),
    ],
    ["Subscribers", active.toLocaleString()],
    [`Began, ${DAYS} days`, started.toLocaleString()],
    [
      `Ended, ${DAYS} days`,
      `${ended.toLocaleString()}${churn === null || ended === 0 ? "" : ` (${(churn * 100).toFixed(1)} %)`}`,
    ],
  ]
  return (
    <section className="four figures" aria-label="Figures">
      {figures.map(([name, value]) => (
        <div key={name} className="card pad">
          <div className="label">{name}</div>
          <div className="figure">{value}</div>
        </div>
      ))}
    </section>
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
          empty={
            <p>No invoice has been created yet. The first one is created three days before the second period begins.</p>
          }
        />
      </section>
    </>
  )
}
