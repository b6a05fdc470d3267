/** Bundles: APIs behind a price, which programs and agents pay by the call. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { useRight } from "../api/me.ts"
import type { BundleListed } from "../api/types.ts"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"

const path = "/api/console/bundles"

const columns: Column<BundleListed>[] = [
  { head: "Name", width: 18, cell: row => <span className="strong">{row.name}</span> },
  { head: "State", width: 5, cell: row => <Status state={row.active ? "on" : "off"} /> },
  { head: "Address", width: 16, cell: row => <span className="mono cut">/{row.slug}</span> },
  { head: "Origin", width: 20, wide: true, cell: row => <div className="cut quiet">{row.originUrl}</div> },
  { head: "Created", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

export function Bundles() {
  const list = usePages<BundleListed>(path)
  const may = useRight("catalog")
  const create = (
    <Button variant="filled" component={Link} to="/bundles/new">
      Sell an API
    </Button>
  )
  return (
    <>
      <PageHead
        title="APIs"
        request={{ path }}
        actions={
          <>
            <Button component={Link} to="/payments" search={{ type: "agent" } as never}>
              Payments by agents
            </Button>
            {may ? create : <NoRight right="catalog" />}
          </>
        }
      />
      <section className="card" aria-label="List">
        <DataTable
          name="APIs"
          columns={columns}
          list={list}
          to={({ id }) => `/bundles/${id}`}
          empty={
            <>
              <h2>No APIs yet</h2>
              <p>
                Put an API behind a price, route by route. Programs and agents pay each call by themselves (x402), and
                your server sees paid calls alone.
              </p>
              {may && create}
            </>
          }
        />
      </section>
    </>
  )
}
