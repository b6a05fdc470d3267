/** Splits: how payments are divided among several wallets. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { useRight } from "../api/me.ts"
import type { SplitListed } from "../api/types.ts"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Time } from "../ui/time.tsx"

const path = "/api/console/splits"

const columns: Column<SplitListed>[] = [
  { head: "Name", width: 18, cell: row => <span className="strong">{row.name}</span> },
  {
    head: "Shares",
    width: 30,
    line: true,
    cell: row => (
      <div className="cut second num">
        {row.recipients
          .map(
            ({ percent, label, address }) => `${percent} % ${label ?? `${address.slice(0, 6)}…${address.slice(-4)}`}`,
          )
          .join(" · ")}
      </div>
    ),
  },
  { head: "Created", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

export function Splits() {
  const list = usePages<SplitListed>(path)
  const may = useRight("payouts")
  const create = (
    <Button variant="filled" component={Link} to="/splits/new">
      Create split
    </Button>
  )
  return (
    <>
      <PageHead title="Splits" request={{ path }} actions={may ? create : <NoRight right="payouts" />} />
      <section className="card" aria-label="List">
        <DataTable
          name="splits"
          columns={columns}
          list={list}
          to={({ id }) => `/splits/${id}`}
          empty={
            <>
              <h2>No splits yet</h2>
              <p>
                A split divides each payment among two to fifty wallets. The contract itself does this, so nobody holds
                the money in between.
              </p>
              {may && create}
            </>
          }
        />
      </section>
    </>
  )
}
