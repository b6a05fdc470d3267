/** Receiving addresses with their terms, and tokens that somebody sent there by mistake. */
import { chosenMerchant } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { facts, networkTitle } from "../api/facts.ts"
import type { Deposit, ForeignToken } from "../api/types.ts"
import { Hash } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { IdLink } from "../ui/linked.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { Time } from "../ui/time.tsx"

const path = "/api/console/deposits"
type Row<T> = T & { id: string }

const columns: Column<Row<Deposit>>[] = [
  {
    head: "Address",
    width: 12,
    cell: row => (
      <span className="row">
        <Hash value={row.address} />
        <a href={`${facts.baseUrl}/address/${row.address}`} target="_blank" rel="noreferrer" className="over">
          terms
        </a>
      </span>
    ),
  },
  {
    head: "Made for",
    width: 8,
    cell: ({ sessionId, paywallId }) =>
      sessionId ? (
        <IdLink to="/checkouts" id={sessionId} />
      ) : paywallId ? (
        <IdLink to="/paywalls" id={paywallId} />
      ) : (
        <span className="quiet">an API</span>
      ),
  },
  { head: "Network", width: 8, wide: true, cell: row => networkTitle(row.chain) },
  { head: "Goes to", width: 10, wide: true, cell: row => <Hash value={row.owner} /> },
  { head: "Yours alone after", width: 8, cell: row => <Time at={row.opensAt} /> },
  { head: "Created", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

const foreign: Column<Row<ForeignToken>>[] = [
  { head: "Token", width: 12, cell: row => <Hash value={row.token} /> },
  { head: "At", width: 12, cell: row => <Hash value={row.address} /> },
  { head: "From", width: 12, wide: true, cell: row => <Hash value={row.from} /> },
  { head: "What can be done", width: 30, wide: true, cell: row => <span className="second">{row.remedy}</span> },
  { head: "Found", width: 8, right: true, cell: row => <Time at={row.foundAt} /> },
]

export function Addresses() {
  const list = usePages<Row<Deposit>>(path, {}, row => row.address)
  const tokens = usePages<Row<ForeignToken>>("/api/console/foreign-tokens", {}, row => `${row.address}${row.token}`)
  const csv = pathOf({ path: `${path}.csv`, query: { merchant: chosenMerchant.get() ?? undefined } })
  return (
    <>
      <PageHead
        title="Receiving addresses"
        up={{ to: "/reports", name: "Reports" }}
        request={{ path }}
        actions={<LinkButton href={csv}>Download the recovery file</LinkButton>}
      />
      <p className="second lead">
        If this service ever disappears, you can take the money from these addresses yourself, after the time shown. The
        recovery file (CSV) has everything that you need for that. Keep a copy of it elsewhere.
      </p>
      <div className="stack">
        <section className="card" aria-label="List">
          <DataTable
            name="addresses"
            columns={columns}
            list={list}
            empty={<p>No addresses yet. Each checkout and each paywall gets its own.</p>}
          />
        </section>
        {(tokens.rows?.length ?? 0) > 0 && (
          <section className="card" aria-label="Other tokens">
            <div className="pad head">
              <h2>Other tokens that were sent there</h2>
            </div>
            <DataTable name="tokens" columns={foreign} list={tokens} empty={null} />
          </section>
        )}
      </div>
    </>
  )
}
