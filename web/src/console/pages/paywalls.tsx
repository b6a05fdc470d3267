/** Paywalls: content that is open to whoever has paid. */
import { GET, taken } from "../api/client.ts"
import type { Page, PaywallListed } from "../api/types.ts"
import { CatalogList, type CatalogQuery } from "../ui/catalog-list.tsx"
import type { Column } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"

/** What a paywall opens, by the API's word. */
export const contentWords: Record<string, string> = {
  content: "A page or file",
  api: "An API",
  file: "A file",
  url: "A page",
}

const columns: Column<PaywallListed>[] = [
  { head: "Name", width: 20, cell: row => <span className="strong">{row.name}</span> },
  { head: "State", width: 5, cell: row => <Status state={row.active ? "on" : "off"} /> },
  { head: "Price", width: 10, cell: row => <Money amount={row.price} currency={row.currency} /> },
  {
    head: "Content",
    width: 8,
    cell: row => <span className="quiet">{contentWords[row.contentType] ?? row.contentType}</span>,
  },
  { head: "Created", width: 8, wide: true, right: true, cell: row => <Time at={row.createdAt} /> },
]

const path = "/api/console/paywalls"

const useRows = (query: CatalogQuery) =>
  useList<PaywallListed>([path, query], async (part, signal): Promise<Page<PaywallListed>> => {
    const { paywalls, ...rest } = await taken(GET(path, { params: { query: { ...query, ...part } }, signal }))
    return { ...rest, data: paywalls }
  })

export const Paywalls = () => (
  <CatalogList
    title="Paywalls"
    name="paywalls"
    to="/paywalls"
    path={path}
    columns={columns}
    useRows={useRows}
    create="Create paywall"
    words="A paywall opens a page, a file or an API to everyone who has paid, including agents."
  />
)
