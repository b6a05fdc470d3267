/** A list of what is sold: links, products, paywalls, APIs. Its search and its switch are in the page's address. */
import { Button } from "@mantine/core"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { useRight } from "../api/me.ts"
import type { Right } from "../api/types.ts"
import { Chips } from "./chips.tsx"
import { type Column, DataTable } from "./data-table.tsx"
import { FindInput } from "./find-input.tsx"
import { PageHead } from "./page.tsx"
import { NoRight } from "./problem.tsx"
import type { Listed } from "./use-list.ts"

interface Given<T> {
  title: string
  /** As the table counts them: `3 links`. */
  name: string
  /** The page's own place, which its things are below. */
  to: string
  path: string
  columns: Column<T>[]
  useRows: (query: CatalogQuery) => Listed<T>
  create: string
  right?: Right
  /** What its things are searched by. */
  by?: string
  /** What such a thing is for, in a sentence or two. */
  words: string
  actions?: ReactNode
}

export interface CatalogQuery extends Record<string, unknown> {
  q?: string
  active?: boolean
}

const switches = [
  ["on", "On"],
  ["off", "Off"],
] as const

export function CatalogList<T extends { id: string }>(given: Given<T>) {
  const { title, name, to, path, columns, useRows, create, right = "catalog", by = "Name", words, actions } = given
  const { q, state } = useSearch({ strict: false }) as { q?: string; state?: "on" | "off" }
  const navigate = useNavigate()
  const may = useRight(right)
  const query = { ...(q ? { q } : {}), ...(state ? { active: state === "on" } : {}) }
  const list = useRows(query)
  const set = (next: { q?: string | undefined; state?: string | undefined }) => {
    const search = Object.fromEntries(Object.entries({ q, state, ...next }).filter(([, value]) => value))
    void navigate({ to, search: search as never, replace: true })
  }
  const filters = [
    q && `a ${by.toLowerCase()} that begins with “${q}”`,
    state && `the state “${state === "on" ? "On" : "Off"}”`,
  ].filter(Boolean)
  const button = (
    <Button variant="filled" component={Link} to={`${to}/new`}>
      {create}
    </Button>
  )
  return (
    <>
      <PageHead
        title={title}
        request={{ path, query }}
        actions={
          <>
            {actions}
            {may ? button : <NoRight right={right} />}
          </>
        }
      />
      <div className="chips">
        <Chips name="State" choices={switches} value={state} set={each => set({ state: each })} />
        <FindInput label={`${by}, as it begins`} value={q ?? ""} set={each => set({ q: each })} />
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name={name}
          columns={columns}
          list={list}
          to={({ id }) => `${to}/${id}`}
          filtered={
            filters.length > 0
              ? { words: filters.join(" and "), clear: () => set({ q: undefined, state: undefined }) }
              : undefined
          }
          empty={
            <>
              <h2>No {name} yet</h2>
              <p>{words}</p>
              {may && button}
            </>
          }
        />
      </section>
    </>
  )
}
