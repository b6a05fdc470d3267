/** Products: a name and a price, for checkouts, links and subscriptions. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { GET, taken } from "../api/client.ts"
import type { Page, Product } from "../api/types.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"

/** How often a product is paid, as in `every month`; `once` without an interval. */
export const rhythmOf = ({ billingInterval: unit, billingCount: count }: Product): string =>
  unit === null ? "once" : count === null || count === 1 ? `every ${unit}` : `every ${count} ${unit}s`

const columns: Column<Product>[] = [
  { head: "Name", width: 20, cell: row => <span className="strong">{row.name}</span> },
  { head: "State", width: 5, cell: row => <Status state={row.active ? "on" : "off"} /> },
  { head: "Price", width: 10, cell: row => <Money amount={row.price} currency={row.currency} /> },
  { head: "Paid", width: 8, cell: row => <span className="quiet">{rhythmOf(row)}</span> },
  { head: "Created", width: 8, wide: true, right: true, cell: row => <Time at={row.createdAt} /> },
]

export function Products() {
  const list = useList<Product>(
    ["products"],
    (after, signal) =>
      taken(
        GET("/api/console/products", { params: { query: { limit: 50, ...(after ? { after } : {}) } }, signal }),
      ) as Promise<Page<Product>>,
  )
  return (
    <>
      <PageHead
        title="Products"
        request={{ path: "/api/console/products" }}
        actions={
          <Button variant="filled" component={Link} to="/products/new">
            Create product
          </Button>
        }
      />
      <section className="card" aria-label="List">
        <DataTable
          name="products"
          columns={columns}
          list={list}
          to={({ id }) => `/products/${id}`}
          empty={
            <>
              <h2>No products yet</h2>
              <p>A product has a name and a price. With an interval it is a subscription.</p>
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
