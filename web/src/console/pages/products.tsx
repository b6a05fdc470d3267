/** Products: a name and a price, for checkouts, links and subscriptions. */
import type { Product } from "../api/types.ts"
import { CatalogList, type CatalogQuery } from "../ui/catalog-list.tsx"
import { usePages } from "../ui/cursor-list.ts"
import type { Column } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { rhythmOf } from "../ui/product-name.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"

const columns: Column<Product>[] = [
  { head: "Name", width: 20, cell: row => <span className="strong">{row.name}</span> },
  { head: "State", width: 5, cell: row => <Status state={row.active ? "on" : "off"} /> },
  { head: "Price", width: 10, cell: row => <Money amount={row.price} currency={row.currency} /> },
  { head: "Paid", width: 8, cell: row => <span className="quiet">{rhythmOf(row)}</span> },
  { head: "Created", width: 8, wide: true, right: true, cell: row => <Time at={row.createdAt} /> },
]

const path = "/api/console/products"
const useRows = (query: CatalogQuery) => usePages<Product>(path, query)

export const Products = () => (
  <CatalogList
    title="Products"
    name="products"
    to="/products"
    path={path}
    columns={columns}
    useRows={useRows}
    create="Create product"
    words="A product has a name and a price. With an interval it is a subscription."
  />
)
