/** Checkouts: one payment each, made by a server or here. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { chosenMerchant, GET, taken } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { networkTitle } from "../api/facts.ts"
import type { Checkout, Page } from "../api/types.ts"
import { useZone } from "../api/zone.ts"
import { useKeys } from "../shell/keys.ts"
import { Chips } from "../ui/chips.tsx"
import { Hash, Id } from "../ui/copy.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { FindInput } from "../ui/find-input.tsx"
import { Money } from "../ui/money.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { TimeChip, type TimeSearch, timeQuery, timeWords } from "../ui/time-chip.tsx"
import { useColumns } from "../ui/use-columns.tsx"
import { useList } from "../ui/use-list.ts"

export interface CheckoutsSearch extends TimeSearch {
  status?: Checkout["status"]
  exception?: Checkout["exception"] & string
  q?: string
}

const states = [
  ["pending", "Waiting"],
  ["authorized", "Reserved"],
  ["confirmed", "Paid"],
  ["expired", "Expired"],
  ["refunded", "Refunded"],
] as const
const exceptions = [
  ["underpaid", "Partly paid"],
  ["overpaid", "Overpaid"],
  ["late", "Paid late"],
  ["duplicate", "Paid twice"],
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
  { head: "Network", width: 10, wide: true, isExtra: true, cell: row => networkTitle(row.chain) },
  {
    head: "Pays to",
    width: 12,
    wide: true,
    isExtra: true,
    cell: ({ payTo }) => (payTo ? <Hash value={payTo} /> : <span className="quiet">–</span>),
  },
  {
    head: "Metadata",
    width: 16,
    wide: true,
    isExtra: true,
    cell: ({ metadata }) => <div className="cut quiet">{metadataText(metadata)}</div>,
  },
  { head: "Id", width: 14, wide: true, isExtra: true, cell: row => <Id value={row.id} /> },
  { head: "Created", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

/** As `order: 1001, shop: Lisbon`. */
const metadataText = (metadata: Checkout["metadata"]): string =>
  Object.entries(metadata ?? {})
    .map(([key, value]) => `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ") || "–"

export function Checkouts() {
  const search = useSearch({ strict: false }) as CheckoutsSearch
  const { status, exception, q } = search
  const navigate = useNavigate()
  const zone = useZone()
  const [shown, columnsMenu] = useColumns("checkouts", columns)
  const query = {
    ...(status ? { status } : {}),
    ...(exception ? { exception } : {}),
    ...(q ? { q } : {}),
    ...timeQuery(search, zone),
  }
  const go = (next: CheckoutsSearch) => void navigate({ to: "/checkouts", search: next as never, replace: true })
  const set = (more: Record<string, unknown>) => go({ ...search, ...more } as never)
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
  const csv = pathOf({
    path: "/api/console/checkouts.csv",
    query: { ...query, merchant: chosenMerchant.get() ?? undefined },
  })
  useKeys({ e: () => location.assign(csv) })
  const words = [
    status && `the state “${stateOf(status)[1]}”`,
    exception && `the exception “${stateOf(exception)[1]}”`,
    q && `“${q}”`,
    timeWords(search),
  ].filter(Boolean)
  return (
    <>
      <PageHead
        title="Checkouts"
        request={{ path: "/api/console/checkouts", query }}
        actions={
          <>
            <LinkButton href={csv}>Export as CSV</LinkButton>
            <Button variant="filled" component={Link} to="/checkouts/new">
              Create checkout
            </Button>
          </>
        }
      />
      <div className="chips">
        <TimeChip value={search} set={set} />
        <Chips name="State" choices={states} value={status as never} set={each => set({ status: each })} />
        <span className="bar-line" aria-hidden="true" />
        <Chips
          name="Exception"
          choices={exceptions}
          value={exception as never}
          set={each => set({ exception: each })}
        />
        <FindInput
          label="E-mail, id, hash, address, or a value of yours"
          value={q ?? ""}
          set={each => set({ q: each || undefined })}
        />
        {columnsMenu}
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="checkouts"
          columns={shown}
          list={list}
          to={({ id }) => `/checkouts/${id}`}
          filtered={words.length > 0 ? { words: words.join(" and "), clear: () => go({}) } : undefined}
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
