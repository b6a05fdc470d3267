/** Paywalls: content that is open to whoever has paid. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { GET, taken } from "../api/client.ts"
import type { Page, PaywallListed } from "../api/types.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { Money } from "../ui/money.tsx"
import { PageHead } from "../ui/page.tsx"
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

export function Paywalls() {
  const list = useList<PaywallListed>(["paywalls"], async (after, signal): Promise<Page<PaywallListed>> => {
    const { paywalls, ...rest } = await taken(
      GET("/api/console/paywalls", { params: { query: { limit: 50, ...(after ? { after } : {}) } }, signal }),
    )
    return { ...rest, data: paywalls }
  })
  return (
    <>
      <PageHead
        title="Paywalls"
        request={{ path: "/api/console/paywalls" }}
        actions={
          <Button variant="filled" component={Link} to="/paywalls/new">
            Create paywall
          </Button>
        }
      />
      <section className="card" aria-label="List">
        <DataTable
          name="paywalls"
          columns={columns}
          list={list}
          to={({ id }) => `/paywalls/${id}`}
          empty={
            <>
              <h2>No paywalls yet</h2>
              <p>A paywall opens a page, a file or an API to whoever has paid, and to agents as well.</p>
              <Button variant="filled" component={Link} to="/paywalls/new">
                Create paywall
              </Button>
            </>
          }
        />
      </section>
    </>
  )
}
