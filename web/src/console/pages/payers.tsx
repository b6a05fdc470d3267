/** Payers: who paid, how much, and when last. */
import { useNavigate, useSearch } from "@tanstack/react-router"
import type { Payer } from "../api/types.ts"
import { Hash } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { FindInput } from "../ui/find-input.tsx"
import { Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
import { Time } from "../ui/time.tsx"

const path = "/api/console/payers"
export type PayerRow = Payer & { id: string }

const isSome = (amount: string): boolean => /[1-9]/.test(amount)

/** What a payer paid, one amount for each token: nothing is added across tokens. */
function Sums({ of, field }: { of: Payer; field: "paid" | "open" | "reserved" | "returned" }) {
  const some = of.totals.filter(each => isSome(each[field]))
  if (some.length === 0) return <span className="quiet">–</span>
  return some.map(each => (
    <div key={`${each.chain}${each.token}`}>
      <Money amount={each[field]} currency={each.currency} />
    </div>
  ))
}

const Count = ({ of }: { of: number }) => (
  <span className="num quiet">{of === 1 ? "1 payment" : `${of.toLocaleString()} payments`}</span>
)

export const payerColumns: Column<PayerRow>[] = [
  { head: "Paid", width: 12, cell: row => <Sums of={row} field="paid" /> },
  { head: "Payer", width: 14, cell: row => <Hash value={row.address} /> },
  {
    head: "Payments",
    width: 8,
    cell: row => <Count of={row.totals.reduce((sum, each) => sum + each.payments, 0)} />,
  },
  { head: "Waits for you", width: 10, wide: true, right: true, cell: row => <Sums of={row} field="open" /> },
  { head: "Reserved", width: 10, wide: true, right: true, cell: row => <Sums of={row} field="reserved" /> },
  { head: "Sent back", width: 10, wide: true, right: true, cell: row => <Sums of={row} field="returned" /> },
  { head: "Last paid", width: 8, right: true, cell: row => <Time at={row.lastPaidAt} /> },
]

const WHOLE = /^(0x[0-9a-fA-F]{40}|[^@\s]+@[^@\s]+\.[^@\s]+)$/

const isWhole = (text: string): boolean => WHOLE.test(text)

export function Payers() {
  const { q } = useSearch({ strict: false }) as { q?: string }
  const navigate = useNavigate()
  const set = (text: string) =>
    void navigate({ to: "/payers", search: (text ? { q: text } : {}) as never, replace: true })
  const query = q ? { q } : {}
  const list = usePages<PayerRow>(path, query, row => row.address)
  return (
    <>
      <PageHead title="Payers" request={{ path, query }} />
      <div className="chips">
        <FindInput
          label="Wallet or e-mail address"
          value={q ?? ""}
          set={set}
          isWhole={isWhole}
          hint="Enter the whole address."
        />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="payers"
          columns={payerColumns}
          list={list}
          to={({ address }) => `/payers/${address}`}
          filtered={q ? { words: `the wallet or e-mail address “${q}”`, clear: () => set("") } : undefined}
          empty={
            <>
              <h2>Nobody has paid yet</h2>
              <p>Each wallet that pays appears here, with its payments, its subscriptions and its access.</p>
            </>
          }
        />
      </section>
    </>
  )
}
