/** Bundles: APIs behind a price, which programs and agents pay by the call. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import type { BundleListed } from "../api/types.ts"
import { CatalogList, type CatalogQuery } from "../ui/catalog-list.tsx"
import { copyText } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import type { Column } from "../ui/data-table.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"

const path = "/api/console/bundles"

const columns: Column<BundleListed>[] = [
  { head: "Name", width: 18, cell: row => <span className="strong">{row.name}</span> },
  { head: "State", width: 5, cell: row => <Status state={row.active ? "on" : "off"} /> },
  {
    head: "Address",
    width: 16,
    cell: row => (
      <button
        type="button"
        className="hash"
        title={`${row.url} (click to copy)`}
        onClick={() => copyText(row.url, "Address")}
      >
        {new URL(row.url).pathname}
      </button>
    ),
  },
  { head: "Your server", width: 20, wide: true, cell: row => <div className="cut quiet">{row.originUrl}</div> },
  { head: "Created", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

const useRows = (query: CatalogQuery) => usePages<BundleListed>(path, query)

export const Bundles = () => (
  <CatalogList
    title="APIs"
    name="APIs"
    to="/bundles"
    path={path}
    columns={columns}
    useRows={useRows}
    create="Sell an API"
    words="Put an API behind a price, route by route. Programs and agents pay for each call themselves (x402), and your server receives only paid calls."
    actions={
      <Button component={Link} to="/payments" search={{ type: "agent" } as never}>
        Payments by agents
      </Button>
    }
  />
)
