/** Payment links: an address that anybody can pay at, as often as it may be used. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { GET, taken } from "../api/client.ts"
import type { Page, PaymentLink } from "../api/types.ts"
import { copyText } from "../ui/copy.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"

const columns: Column<PaymentLink>[] = [
  { head: "Title", width: 20, cell: row => <span className="strong">{row.title}</span> },
  { head: "State", width: 5, cell: row => <Status state={row.active ? "on" : "off"} /> },
  {
    head: "Amount",
    width: 10,
    cell: row =>
      row.amount === null ? (
        <span className="quiet">the payer chooses</span>
      ) : (
        <Money amount={row.amount} currency={row.currency} />
      ),
  },
  {
    head: "Used",
    width: 6,
    right: true,
    cell: row => (
      <span className="num">
        {row.uses}
        <span className="quiet">
          {row.maxUses === null ? (row.uses === 1 ? " time" : " times") : ` of ${row.maxUses}`}
        </span>
      </span>
    ),
  },
  {
    head: "Address",
    width: 14,
    wide: true,
    cell: row => (
      <button
        type="button"
        className="hash"
        title={`${row.url} (click to copy)`}
        onClick={() => copyText(row.url, "Address")}
      >
        /p/{row.slug}
      </button>
    ),
  },
  { head: "Created", width: 8, wide: true, right: true, cell: row => <Time at={row.createdAt} /> },
]

export function Links() {
  const list = useList<PaymentLink>(
    ["links"],
    (after, signal) =>
      taken(
        GET("/api/console/payment-links", { params: { query: { limit: 50, ...(after ? { after } : {}) } }, signal }),
      ) as Promise<Page<PaymentLink>>,
  )
  return (
    <>
      <PageHead
        title="Links"
        request={{ path: "/api/console/payment-links" }}
        actions={
          <Button variant="filled" component={Link} to="/links/new">
            Create link
          </Button>
        }
      />
      <section className="card" aria-label="List">
        <DataTable
          name="links"
          columns={columns}
          list={list}
          to={({ id }) => `/links/${id}`}
          empty={
            <>
              <h2>No links yet</h2>
              <p>A link takes payments without a server: send it by mail or chat, or print its QR code.</p>
              <Button variant="filled" component={Link} to="/links/new">
                Create link
              </Button>
            </>
          }
        />
      </section>
    </>
  )
}
