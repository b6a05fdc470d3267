/** Which columns of a list are shown. The browser keeps the choice. */
import type { ReactNode } from "react"
import { keptStore } from "../api/store.ts"
import type { Column } from "./data-table.tsx"
import { later } from "./later.tsx"

/** The heads of the chosen columns, by the list's name. */
const chosen = keptStore<Record<string, string[]>>("columns", {})

const Menu = later(async () => (await import("./columns-menu.tsx")).default, <span className="chip">Columns</span>)

/** The columns to show, and the menu that chooses them. The first column is always there, as it leads to the row's page. */
export function useColumns<T>(name: string, all: readonly Column<T>[]): [Column<T>[], ReactNode] {
  const kept = chosen.use()[name]
  const isShown = (column: Column<T>, at: number): boolean =>
    at === 0 || (kept ? kept.includes(column.head) : column.isExtra !== true)
  const shown = all.filter(isShown)
  const heads = shown.map(({ head }) => head)
  const flip = (head: string) =>
    chosen.set({
      ...chosen.get(),
      [name]: heads.includes(head) ? heads.filter(each => each !== head) : [...heads, head],
    })
  const reset = () => {
    const { [name]: _, ...others } = chosen.get()
    chosen.set(others)
  }
  return [
    shown,
    <Menu
      key="columns"
      heads={all.slice(1).map(({ head }) => head)}
      shown={heads}
      flip={flip}
      reset={kept ? reset : undefined}
    />,
  ]
}
