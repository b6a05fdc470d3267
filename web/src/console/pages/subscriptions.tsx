/** Subscriptions and their invoices: two lists, each with a CSV. */
import { Button } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { short } from "../../ui/amounts.ts"
import { chosenMerchant, read } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { retries } from "../api/live.ts"
import { type Overview, useOverview } from "../api/overview.ts"
import type { Invoice, Page, Subscription } from "../api/types.ts"
import { useKeys } from "../shell/keys.ts"
import { Chips } from "../ui/chips.tsx"
import { Hash } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { FindInput } from "../ui/find-input.tsx"
import { IdLink } from "../ui/linked.tsx"
import { Money } from "../ui/money.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { rhythmOf, useProducts } from "../ui/product-name.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Day, Time } from "../ui/time.tsx"

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
        {rhythmOf(of)}
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
  { head: "Number", width: 8, wide: true, cell: row => <span className="num">Invoice {row.sequence}</span> },
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

/** The newest hundred subscriptions by their ids. */
const useSubscribers = () =>
  useQuery({
    queryKey: ["subscriptions", "names"],
    queryFn: async ({ signal }) => {
      const { data } = await read<Page<Subscription>>("/api/console/subscriptions", { limit: 100 }, signal)
      return new Map(data.map(each => [each.id, each]))
    },
    staleTime: 60_000,
    ...retries,
  })

/** A subscription's page, by its subscriber; by its id where that is not known. */
function SubscriberLink({ id }: { id: string }) {
  const found = useSubscribers().data?.get(id)
  if (!found) return <IdLink to="/subscriptions" id={id} />
  return (
    <Link to={`/subscriptions/${id}`} className={`plain-link over ${found.customerEmail ? "" : "mono"}`} title={id}>
      {found.customerEmail ?? short(found.payer)}
    </Link>
  )
}

/** The invoices of all subscriptions also say whose each is. */
const columnsOfAll: Column<Invoice>[] = [
  ...invoiceColumns.slice(0, 2),
  { head: "Subscriber", width: 18, wide: true, cell: row => <SubscriberLink id={row.subscriptionId} /> },
  ...invoiceColumns.slice(2),
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
                Whoever buys a product that is paid every month starts a subscription. Nobody can charge a wallet, so
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
  const { data, error } = useOverview(DAYS)
  const sums = data?.subscriptions
  const figures: [string, ReactNode][] = [
    ["A month brings", sums && <Monthly of={sums.mrr} />],
    ["Subscribers", sums?.active.toLocaleString()],
    [`Began, ${DAYS} days`, sums?.started.toLocaleString()],
    [`Ended, ${DAYS} days`, sums && endedText(sums)],
  ]
  return (
    <section className="four figures" aria-label="Figures">
      {figures.map(([name, value]) => (
        <div key={name} className="card pad">
          <div className="label">{name}</div>
          <div className="figure">
            {value ?? (error ? "–" : <span className="bone" style={{ width: "5ch" }} aria-hidden="true" />)}
          </div>
        </div>
      ))}
    </section>
  )
}

type Sums = Overview["subscriptions"]

const Monthly = ({ of }: { of: Sums["mrr"] }) =>
  of.length === 0
    ? "–"
    : of.map(({ chain, token, amount, currency }) => (
        <div key={`${chain}${token}`}>
          <Money size="figure" amount={amount} currency={currency} />
        </div>
      ))

const endedText = ({ ended, churn }: Sums): string =>
  `${ended.toLocaleString()}${churn === null || ended === 0 ? "" : ` (${(churn * 100).toFixed(1)} %)`}`

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
          columns={columnsOfAll}
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
