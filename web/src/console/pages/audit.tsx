/** The audit log: who changed what, from where, and what it was before. */
import { useNavigate, useSearch } from "@tanstack/react-router"
import { useState } from "react"
import { actionText, changedIn, fieldText } from "../api/audit.ts"
import { chosenMerchant } from "../api/client.ts"
import { pathOf } from "../api/curl.ts"
import { personText } from "../api/me.ts"
import type { AuditEntry } from "../api/types.ts"
import { useZone } from "../api/zone.ts"
import { kinds, Of, Who } from "../ui/audit-words.tsx"
import { PickChip } from "../ui/chips.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { later } from "../ui/later.tsx"
import { LinkButton, PageHead } from "../ui/page.tsx"
import { SettingsTabs } from "../ui/settings-tabs.tsx"
import { Time } from "../ui/time.tsx"
import { timeQuery } from "../ui/time-chip.tsx"

const EntryDialog = later(async () => (await import("../ui/audit-entry.tsx")).default)

export interface AuditSearch {
  actor?: string
  actorKind?: AuditEntry["actor"]["kind"]
  days?: number
}

const path = "/api/console/audit"

const kindChoices = [["", "By anyone"], ...Object.entries(kinds)] as [AuditEntry["actor"]["kind"] | "", string][]
const times = [
  ["", "Any time"],
  ["1", "Last 24 hours"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
] as const

export function Audit() {
  const { actor, actorKind, days } = useSearch({ strict: false }) as AuditSearch
  const navigate = useNavigate()
  const zone = useZone()
  const [open, setOpen] = useState<AuditEntry | undefined>()
  const query = {
    ...(actor ? { actor } : {}),
    ...(actorKind ? { actorKind } : {}),
    ...timeQuery(days ? { days } : {}, zone),
  }
  const list = usePages<AuditEntry>(path, query)
  const set = (more: { [K in keyof AuditSearch]?: AuditSearch[K] | undefined }) => {
    const search = Object.fromEntries(Object.entries({ actor, actorKind, days, ...more }).filter(([, value]) => value))
    void navigate({ to: "/audit", search: search as never, replace: true })
  }
  const columns: Column<AuditEntry>[] = [
    {
      head: "What",
      width: 18,
      cell: row => (
        <button type="button" className="strong plain-button" onClick={() => setOpen(row)} title="Previous value">
          {actionText(row.action)}
        </button>
      ),
    },
    {
      head: "Who",
      width: 16,
      cell: ({ actor }) =>
        actor.id === null ? (
          <Who {...actor} />
        ) : (
          <button
            type="button"
            className={actor.kind === "console" ? "plain-button" : "hash"}
            title={`Only what ${actor.id} did`}
            onClick={() => set({ actor: String(actor.id) })}
          >
            <Who {...actor} />
          </button>
        ),
    },
    {
      head: "Changed",
      width: 18,
      wide: true,
      cell: row => (
        <div className="cut second">{changedIn(row).map(fieldText).join(", ") || <span className="quiet">–</span>}</div>
      ),
    },
    { head: "Of", width: 12, wide: true, cell: ({ object }) => <Of {...object} /> },
    { head: "When", width: 8, right: true, cell: row => <Time at={row.at} /> },
  ]
  const csv = pathOf({ path: `${path}.csv`, query: { ...query, merchant: chosenMerchant.get() ?? undefined } })
  const words = [
    actor && `the actor “${personText({ email: null, subject: actor })}”`,
    actorKind && `changes by “${kinds[actorKind]}”`,
    days && `a time in the last ${days === 1 ? "24 hours" : `${days} days`}`,
  ].filter(Boolean)
  return (
    <>
      <PageHead
        title="Audit log"
        request={{ path, query }}
        actions={<LinkButton href={csv}>Export as CSV</LinkButton>}
      />
      <SettingsTabs />
      <div className="chips">
        <PickChip name="By" choices={kindChoices} value={actorKind} set={each => set({ actorKind: each })} />
        <PickChip
          name="Time"
          choices={times}
          value={days === undefined ? undefined : (String(days) as never)}
          set={each => set({ days: each && Number(each) } as never)}
        />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="entries"
          columns={columns}
          list={list}
          filtered={
            words.length > 0
              ? {
                  words: words.join(" and "),
                  clear: () => set({ actor: undefined, actorKind: undefined, days: undefined }),
                }
              : undefined
          }
          empty={
            <>
              <h2>Nothing has been changed yet</h2>
              <p>
                Each change to a setting, a key, a member or what is sold stays here permanently, and shows who made it.
              </p>
            </>
          }
        />
      </section>
      {open && <EntryDialog entry={open} close={() => setOpen(undefined)} />}
    </>
  )
}
