/** The audit log: who changed what, from where. */
import { Button } from "@mantine/core"
import { useNavigate, useSearch } from "@tanstack/react-router"
import { chosenMerchant } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import type { AuditEntry } from "../api/types.ts"
import { Id } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { SettingsTabs } from "../ui/settings-tabs.tsx"
import { Time } from "../ui/time.tsx"

export interface AuditSearch {
  actor?: string
}

const path = "/api/console/audit"

export function Audit() {
  const { actor } = useSearch({ strict: false }) as AuditSearch
  const navigate = useNavigate()
  const query = actor ? { actor } : {}
  const list = usePages<AuditEntry>(path, query)
  const set = (next: AuditSearch) => void navigate({ to: "/audit", search: next as never, replace: true })
  const columns: Column<AuditEntry>[] = [
    {
      head: "What",
      width: 18,
      cell: row => <span className="strong">{row.action.replace(/[._]/g, " ")}</span>,
    },
    {
      head: "Who",
      width: 16,
      cell: ({ actor }) =>
        actor.id === null ? (
          <span className="quiet">{actor.kind}</span>
        ) : (
          <button type="button" className="hash" onClick={() => set({ actor: String(actor.id) })}>
            <span>{actor.id.length > 20 ? `${actor.id.slice(0, 8)}…${actor.id.slice(-4)}` : actor.id}</span>
          </button>
        ),
    },
    { head: "Of", width: 12, wide: true, cell: ({ object }) => (object.id ? <Id value={object.id} /> : object.type) },
    { head: "From", width: 10, wide: true, cell: row => <span className="quiet num">{row.address ?? "–"}</span> },
    { head: "When", width: 8, right: true, cell: row => <Time at={row.at} /> },
  ]
  const csv = pathOf({ path: `${path}.csv`, query: { ...query, merchant: chosenMerchant.get() ?? undefined } })
  return (
    <>
      <PageHead
        title="Settings"
        request={{ path, query }}
        actions={<LinkButton href={csv}>Export as CSV</LinkButton>}
      />
      <SettingsTabs />
      {actor && (
        <div className="chips">
          <Button size="xs" onClick={() => set({})}>
            Only {actor} ✕
          </Button>
        </div>
      )}
      <section className="card" aria-label="List">
        <DataTable
          name="entries"
          columns={columns}
          list={list}
          filtered={actor ? { words: `the person “${actor}”`, clear: () => set({}) } : undefined}
          empty={<p>Nothing was changed yet.</p>}
        />
      </section>
    </>
  )
}
