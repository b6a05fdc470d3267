/** Every movement of money, newest first: filters in the address, a CSV of the whole filtered set. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { chosenMerchant, GET, taken } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { facts, networkTitle } from "../api/facts.ts"
import type { Page, Transaction } from "../api/types.ts"
import { useZone } from "../api/zone.ts"
import { useKeys } from "../shell/keys.ts"
import { Chips, PickChip } from "../ui/chips.tsx"
import { Hash, Id, shortId } from "../ui/copy.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { FindInput } from "../ui/find-input.tsx"
import { Money } from "../ui/money.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { Status, stateOf } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { TimeChip, type TimeSearch, timeQuery, timeWords } from "../ui/time-chip.tsx"
import { Totals } from "../ui/totals.tsx"
import { useColumns } from "../ui/use-columns.tsx"
import { useList } from "../ui/use-list.ts"

export interface PaymentsSearch extends TimeSearch {
  type?: Transaction["type"]
  status?: Transaction["status"]
  /** Why a payment needed a decision. */
  exception?: NonNullable<Transaction["exception"]>
  chain?: string
  /** As typed, with a point or a comma; a number where someone wrote the address by hand. */
  amount?: string | number
  q?: string
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
const states = (["granted", "authorized", "open", "returned", "reversed"] as const).map(
  state => [state, stateOf(state)[1]] as const,
)
const reasons = [
  ["", "Any reason"],
  ...(["underpaid", "overpaid", "late", "duplicate", "wrong_asset", "sanctioned", "no_buyer"] as const).map(
    reason => [reason, stateOf(reason)[1]] as const,
  ),
] as const
const networks = [
  ["", "All networks"],
  ...facts.networks.map(({ network, title }) => [network, title] as const),
] as const

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

const extras: Column<Transaction>[] = [
  {
    head: "To",
    width: 12,
    wide: true,
    isExtra: true,
    cell: row => (row.recipient ? <Hash value={row.recipient} /> : <span className="quiet">–</span>),
  },
  { head: "Network", width: 10, wide: true, isExtra: true, cell: row => networkTitle(row.chain) },
  {
    head: "Value",
    width: 10,
    wide: true,
    isExtra: true,
    cell: ({ value }) =>
      value?.amount ? <Money amount={value.amount} currency={value.currency} /> : <span className="quiet">–</span>,
  },
  { head: "Id", width: 14, wide: true, isExtra: true, cell: row => <Id value={row.id} /> },
]
const allColumns = [...moneyColumns.slice(0, -1), ...extras, ...moneyColumns.slice(-1)]

export const toPayment = (row: { id: string }): string => `/payments/${row.id}`

export function Payments() {
  const search = useSearch({ strict: false }) as PaymentsSearch
  const navigate = useNavigate()
  const zone = useZone()
  const { type, status, exception, chain, q, slug, productId } = search
  const amount = search.amount === undefined ? undefined : String(search.amount)
  const [columns, columnsMenu] = useColumns("payments", allColumns)
  const set = (more: Partial<PaymentsSearch>) =>
    void navigate({ to: "/payments", search: { ...search, ...more } as never, replace: true })
  const query = {
    type: type ?? ("payment" as const),
    ...(status ? { status } : {}),
    ...(exception ? { exception } : {}),
    ...(chain ? { chain } : {}),
    ...(amount ? { amount: amount.replace(",", ".") } : {}),
    ...queryOf(q),
    ...timeQuery(search, zone),
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
    exception && `the reason “${stateOf(exception)[1]}”`,
    chain && `the network “${networkTitle(chain)}”`,
    amount && `the amount “${amount}”`,
    q && `“${q}”`,
    slug && `the link “${slug}”`,
    productId && `the product ${shortId(productId)}`,
    timeWords(search),
    type && `the kind “${kinds.find(([kind]) => kind === type)?.[1]}”`,
  ].filter(Boolean)
  return (
    <>
      <PageHead
        title="Payments"
        request={{ path: "/api/console/transactions", query }}
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
        <PickChip
          name="Kind"
          choices={kinds}
          value={type as never}
          set={each => set({ type: each, status: undefined, exception: undefined } as never)}
        />
        <TimeChip value={search} set={next => set(next as never)} />
        {networks.length > 2 && (
          <PickChip name="Network" choices={networks} value={chain} set={each => set({ chain: each } as never)} />
        )}
        {type === undefined && (
          <PickChip name="Reason" choices={reasons} value={exception} set={each => set({ exception: each } as never)} />
        )}
        {(type === undefined || type === "agent") && (
          <Chips name="State" choices={states} value={status as never} set={each => set({ status: each } as never)} />
        )}
        <div className="finds">
          <FindInput
            label="Exact amount"
            value={amount ?? ""}
            set={each => set({ amount: each === "" ? undefined : each } as never)}
            isWhole={isAmount}
            hint="Enter an amount such as 49.00 or 1250."
            isNumber
          />
          <FindInput
            label="Hash, address, id, e-mail, or order: 1042"
            value={q ?? ""}
            set={each => set({ q: each === "" ? undefined : each } as never)}
            isWhole={isWhole}
            hint="Enter the whole value."
          />
          {columnsMenu}
        </div>
      </div>
      <section className="card" aria-label="List">
        {/* Of a payment that counts only the excess waits, and a total has it whole. */}
        {status !== "open" && <Totals query={query} />}
        <DataTable
          name="payments"
          columns={columns}
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

const AMOUNT = /^(?!0[.,]?0*$)(0|[1-9]\d{0,29})([.,]\d{1,18})?$/
/** It may be a thousand, or one with three decimals. */
const UNCLEAR = /^[1-9]\d{0,2},\d{3}$/

/** Whether the API can find by this amount. */
const isAmount = (text: string): boolean => AMOUNT.test(text) && !UNCLEAR.test(text)

/** Whether the API can find by it. */
const isWhole = (text: string): boolean => WHOLE.test(text) || EMAIL.test(text) || FIELD.test(text)
