/** Payment links: an address that anybody can pay at, as often as it may be used. */
import type { PaymentLink } from "../api/types.ts"
import { CatalogList, type CatalogQuery } from "../ui/catalog-list.tsx"
import { copyText } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import type { Column } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"

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

const path = "/api/console/payment-links"
const useRows = (query: CatalogQuery) => usePages<PaymentLink>(path, query)

export const Links = () => (
  <CatalogList
    title="Links"
    name="links"
    to="/links"
    path={path}
    columns={columns}
    useRows={useRows}
    create="Create link"
    by="Title"
    words="A link takes payments without a server: send it by mail or chat, or print its QR code."
  />
)
