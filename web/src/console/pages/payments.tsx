/** Every movement of money, newest first: filters in the address, a CSV of the whole filtered set. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { chosenMerchant, GET, taken } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import type { Page, Transaction } from "../api/types.ts"
import { useKeys } from "../shell/keys.ts"
import { Chips, PickChip } from "../ui/chips.tsx"
import { Hash, Id, shortId } from "../ui/copy.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { FindInput } from "../ui/find-input.tsx"
import { Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"

export interface PaymentsSearch {
  type?: Transaction["type"]
  status?: Transaction["status"]
  q?: string
  days?: number
  /** Those of one link, or of one product. */
  slug?: string
  productId?: string
}

const kinds = [
  ["", "Payments"],
  ["agent", "By agents"],
  ["sweep", "Payouts"],
  ["share", "Shares"],
  ["return", "Returns"],
  ["refund", "Refunds"],
] as const
const states = [
  ["granted", "Paid"],
  ["open", "Needs you"],
  ["returned", "Returned"],
  ["reversed", "Reversed"],
] as const
const times = [
  ["", "Any time"],
  ["1", "Last 24 hours"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
  ["90", "Last 90 days"],
] as const

const DAY_MS = 86_400_000
/** To the hour, so that one filter is one list for an hour. */
const since = (days: number): string =>
  new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000 - days * DAY_MS).toISOString()

/** What a movement was for, in the merchant's own words where there are some. */
export function What({ sessionId, paywallId, bundleId, paymentId, type, description }: Transaction) {
  const id = type !== "payment" && type !== "agent" && paymentId ? paymentId : (sessionId ?? paywallId ?? bundleId)
  if (description) return <div className="cut">{description}</div>
  return id ? <Id value={id} /> : <span className="quiet">–</span>
}

export const moneyColumns: Column<Transaction>[] = [
  { head: "Amount", width: 12, cell: row => <Money amount={row.amount} currency={row.currency} /> },
  {
    head: "State",
    width: 8,
    cell: row => <Status state={row.status} why={row.exception} />,
  },
  { head: "For", width: 18, cell: row => <What {...row} /> },
  {
    head: "Payer",
    width: 12,
    wide: true,
    cell: row => (row.payer ? <Hash value={row.payer} /> : <span className="quiet">–</span>),
  },
  {
    head: "Transaction",
    width: 12,
    wide: true,
    cell: row =>
      row.txHash ? <Hash value={row.txHash} what="Hash" dot={false} /> : <span className="quiet">not sent yet</span>,
  },
  { head: "When", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

export const toPayment = (row: { id: string }): string => `/payments/${row.id}`

export function Payments() {
  const search = useSearch({ strict: false }) as PaymentsSearch
  const navigate = useNavigate()
  const { type, status, q, days, slug, productId } = search
  const set = (more: Partial<PaymentsSearch>) =>
    void navigate({ to: "/payments", search: { ...search, ...more } as never, replace: true })
  const query = {
    type: type ?? ("payment" as const),
    ...(status ? { status } : {}),
    ...queryOf(q),
    ...(days ? { from: since(days) } : {}),
    ...(slug ? { slug } : {}),
    ...(productId ? { productId } : {}),
  }
  const list = useList<Transaction>(
    ["transactions", query],
    (part, signal) =>
      taken(
        GET("/api/console/transactions", {
          params: { query: { ...query, ...part } as never },
          signal,
        }),
      ) as Promise<Page<Transaction>>,
  )
  const csv = pathOf({
    path: "/api/console/transactions.csv",
    query: { ...query, merchant: chosenMerchant.get() ?? undefined },
  })
  useKeys({ e: () => location.assign(csv) })
  const words = [
    status && `the state “${stateOf(status)[1]}”`,
    q && `“${q}”`,
    slug && `the link “${slug}”`,
    productId && `the product ${shortId(productId)}`,
    days && `a time in the last ${days === 1 ? "24 hours" : `${days} days`}`,
    type && `the kind “${kinds.find(([kind]) => kind === type)?.[1]}”`,
  ].filter(Boolean)
  return (
    <>
      <PageHead
        title="Payments"
        request={{ path: "/api/console/transactions", query }}
        actions={
          <>
            <Button component="a" href={csv} download>
              Export as CSV
            </Button>
            <Button variant="filled" component={Link} to="/checkouts/new">
              Create checkout
            </Button>
          </>
        }
      />
      <div className="chips">
        <PickChip
          name="Kind"
          choices={kinds}
          value={type as never}
          set={each => set({ type: each, status: undefined } as never)}
        />
        <PickChip
          name="Time"
          choices={times}
          value={days === undefined ? undefined : (String(days) as never)}
          set={each => set({ days: each && Number(each) } as never)}
        />
        {(type === undefined || type === "agent") && (
          <Chips name="State" choices={states} value={status as never} set={each => set({ status: each } as never)} />
        )}
        <FindInput
          label="Hash, address, id, e-mail, or order: 1042"
          value={q ?? ""}
          set={each => set({ q: each === "" ? undefined : each } as never)}
          isWhole={isWhole}
          hint="Enter the whole value."
        />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="payments"
          columns={moneyColumns}
          list={list}
          to={toPayment}
          filtered={
            words.length > 0
              ? { words: words.join(" and "), clear: () => void navigate({ to: "/payments", search: {} as never }) }
              : undefined
          }
          empty={
            <>
              <h2>No payments yet</h2>
              <p>A payment appears here a second after its transfer is in a block.</p>
              <Button variant="filled" component={Link} to="/checkouts/new">
                Create the first checkout
              </Button>
            </>
          }
        />
      </section>
    </>
  )
}

const WHOLE = /^(0x[0-9a-fA-F]{40}|0x[0-9a-fA-F]{64}|[a-z]{2,5}_[a-z0-9]{24,32})$/
const EMAIL = /^[^@\s]+@[^@\s]+\.[^@\s]+$/
const FIELD = /^([\w-]{1,40}):\s*(\S.{0,199})$/

/** The parameters that a text stands for: an id, a hash or an address; an e-mail address; `order: 1042` of the metadata. */
function queryOf(text: string | undefined): Record<string, string> {
  if (!text) return {}
  const [, key, value] = FIELD.exec(text) ?? []
  if (key !== undefined && value !== undefined) return { [`metadata[${key}]`]: value }
  return EMAIL.test(text) ? { customerEmail: text } : { q: text }
}

/** Whether the API can find by it. */
const isWhole = (text: string): boolean => WHOLE.test(text) || EMAIL.test(text) || FIELD.test(text)
