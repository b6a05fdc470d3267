/** The one table: its rows, every state that it can be in, and the keys j, k, Enter and x. */
import { Button, Checkbox } from "@mantine/core"
import { Link, useNavigate } from "@tanstack/react-router"
import { useWindowVirtualizer } from "@tanstack/react-virtual"
import { memo, type ReactNode, useEffect, useRef, useState } from "react"
import { useKeys } from "../shell/keys.ts"
import { StillWaiting } from "./not-yet.tsx"
import { Problem, Stale } from "./problem.tsx"
import type { Listed } from "./use-list.ts"

export interface Column<T> {
  head: string
  cell: (row: T) => ReactNode
  /** At the end of the line, as numbers and times are. */
  right?: boolean
  /** Left out on a phone, where two lines must say enough. */
  wide?: boolean
  /** On a phone a line of its own, below the others. */
  line?: boolean
  /** Left out until it is chosen (`use-columns.tsx`). */
  isExtra?: boolean
  /** In characters, for the skeleton. */
  width?: number
}

interface Given<T> {
  name: string
  columns: Column<T>[]
  list: Listed<T>
  /** Where a row leads. */
  to?: (row: T) => string
  empty: ReactNode
  /** What is filtered by, in words, and how to stop; undefined without a filter. */
  filtered?: { words: string; clear: () => void } | undefined
  /** Whether it is only the beginning of a list, which has its own page. */
  isPart?: boolean
  picked?: { ids: ReadonlySet<string>; set: (ids: Set<string>) => void; may?: (row: T) => boolean } | undefined
}

const SKELETON_ROWS = 6
const VIRTUAL_FROM = 200
/**
 * How high a row is that was not drawn yet: as high as the first one here, which on a phone has two lines. A list that
 * one comes back to is as long as before only if this is what its rows were.
 */
let rowPx = 44

export function DataTable<T extends { id: string }>(given: Given<T>) {
  const { name, list, empty, filtered } = given
  const { rows, error } = list
  if (!rows && error) return <Problem error={error} retry={list.retry} />
  if (!rows) return <Skeleton {...given} />
  return (
    <div onPointerEnter={() => list.hold(true)} onPointerLeave={() => list.hold(false)}>
      {error ? <Stale error={error} asOf={list.asOf} retry={list.retry} /> : null}
      {list.waiting > 0 && (
        <button type="button" className="strip wait newer" onClick={list.show}>
          {list.waiting} new: show {list.waiting === 1 ? "it" : "them"}
        </button>
      )}
      {rows.length > 0 && filtered && (
        <div className="matches num" role="status">
          <span>
            {countText(countOf(list, rows), name)} with {filtered.words}
          </span>
          <button type="button" className="plain-link" onClick={filtered.clear}>
            Clear the filter
          </button>
        </div>
      )}
      {rows.length > 0 ? (
        <Rows {...given} rows={rows} />
      ) : filtered ? (
        <div className="state">
          <p>
            No {name} with {filtered.words}.
          </p>
          <Button onClick={filtered.clear}>Clear the filter</Button>
        </div>
      ) : (
        <div className="state">{empty}</div>
      )}
      {rows.length > 0 && !given.isPart && (
        <div className="foot-row num">
          <span>
            {rows.length === countOf(list, rows).total ? "" : `${rows.length.toLocaleString()} of `}
            {countText(countOf(list, rows), name)}
          </span>
          {list.more && (
            <Button size="xs" onClick={list.more} loading={list.isLoadingMore}>
              Show more
            </Button>
          )}
        </div>
      )}
    </div>
  )
}

/** Read to the end, the rows are the count; before it there are at least as many. */
const countOf = <T,>({ total, isLeast, more }: Listed<T>, rows: T[]) =>
  more ? { total: Math.max(total, rows.length), isLeast } : { total: rows.length, isLeast: false }

/** How many there are, as far as the API counts. */
const countText = ({ total, isLeast }: Pick<Listed<unknown>, "total" | "isLeast">, name: string): string =>
  `${isLeast ? "more than " : ""}${total.toLocaleString()} ${total === 1 ? oneOf(name) : name}`

/** One of what a list has: `deliveries`, `entries`, `payments to decide`. */
const oneOf = (name: string): string => name.replace(/^(\w+?)(ie)?s\b/, (_, stem, y) => (y ? `${stem}y` : stem))

function Head<T>({ columns, picked }: Given<T>) {
  return (
    <thead>
      <tr>
        {picked && (
          <th>
            <span className="unseen">Chosen</span>
          </th>
        )}
        {columns.map(({ head, right, wide }) => (
          <th key={head} scope="col" className={`${right ? "r" : ""} ${wide ? "wide" : ""}`}>
            {head || <span className="unseen">What can be done</span>}
          </th>
        ))}
      </tr>
    </thead>
  )
}

function Skeleton<T>(given: Given<T>) {
  return (
    <div className="late" role="status" aria-label={`Loading ${given.name}`}>
      <table className="list" aria-hidden="true">
        <Head {...given} />
        <tbody>
          {Array.from({ length: SKELETON_ROWS }, (_, i) => (
            <tr key={i}>
              {given.picked && <td className="box" />}
              {given.columns.map(({ head, width = 10, right, wide }) => (
                <td key={head} className={`${right ? "r" : ""} ${wide ? "wide" : ""}`}>
                  <span className="bone" style={{ width: `${width}ch` }} />
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      <StillWaiting />
    </div>
  )
}

function Rows<T extends { id: string }>(given: Given<T> & { rows: T[] }) {
  const { name, rows, columns, to, picked, list } = given
  const body = useRef<HTMLTableSectionElement>(null)
  const navigate = useNavigate()
  const [at, setAt] = useState(-1)
  const step = (by: number) => setAt(before => Math.max(0, Math.min(rows.length - 1, before + by)))
  useKeys({
    j: () => step(1),
    k: () => step(-1),
    x: () => pick(picked, rows[at]),
    Enter: () => {
      const row = rows[at]
      if (row && to) void navigate({ to: to(row) })
    },
  })
  const isLong = rows.length > VIRTUAL_FROM
  const virtual = useWindowVirtualizer({
    count: rows.length,
    estimateSize: () => rowPx,
    overscan: 12,
    enabled: isLong,
    scrollMargin: body.current?.offsetTop ?? 0,
  })
  useEffect(() => {
    const height = isLong ? body.current?.querySelector("tr.open")?.getBoundingClientRect().height : undefined
    if (!height || height === rowPx) return
    rowPx = height
    virtual.measure()
  }, [isLong, virtual])
  useEffect(() => {
    if (at < 0) return
    if (isLong) virtual.scrollToIndex(at)
    else body.current?.rows[at]?.scrollIntoView({ block: "nearest" })
  }, [at, isLong, virtual])
  const items = virtual.getVirtualItems()
  const from = isLong ? (items[0]?.index ?? 0) : 0
  const until = isLong ? (items.at(-1)?.index ?? -1) + 1 : rows.length
  const above = isLong ? (items[0]?.start ?? 0) - virtual.options.scrollMargin : 0
  const below = isLong ? virtual.getTotalSize() - ((items.at(-1)?.end ?? 0) - virtual.options.scrollMargin) : 0
  return (
    <table className="list" aria-label={name} aria-rowcount={rows.length + 1}>
      <Head {...given} />
      <tbody ref={body}>
        {above > 0 && <tr style={{ height: above }} />}
        {rows.slice(from, until).map((row, i) => (
          <Row
            key={row.id}
            row={row}
            index={from + i}
            columns={columns as Column<{ id: string }>[]}
            to={to as RowGiven["to"]}
            picked={picked as RowGiven["picked"]}
            isOn={from + i === at || picked?.ids.has(row.id) === true}
            isFresh={list.fresh.has(row.id)}
            measure={isLong ? virtual.measureElement : undefined}
          />
        ))}
        {below > 0 && <tr style={{ height: below }} />}
      </tbody>
    </table>
  )
}

type Picked<T> = Given<T>["picked"]

/** Chooses a row, or no longer. */
function pick<T extends { id: string }>(picked: Picked<T>, row: T | undefined): void {
  if (!row || !picked || picked.may?.(row) === false) return
  const ids = new Set(picked.ids)
  if (!ids.delete(row.id)) ids.add(row.id)
  picked.set(ids)
}

interface RowGiven {
  row: { id: string }
  index: number
  columns: Column<{ id: string }>[]
  to: ((row: { id: string }) => string) | undefined
  picked: Picked<{ id: string }>
  isOn: boolean
  isFresh: boolean
  /** Of a long list, whose rows are measured. */
  measure: ((element: HTMLTableRowElement | null) => void) | undefined
}

/** Drawn again only if it changed: while a long list scrolls, most of the rows stay. */
const Row = memo(function Row({ row, index, columns, to, picked, isOn, isFresh, measure }: RowGiven) {
  return (
    <tr
      data-index={index}
      aria-rowindex={measure ? index + 2 : undefined}
      ref={measure}
      data-on={isOn || undefined}
      className={[to && "open", picked && "has-box", isFresh && "fresh"].filter(Boolean).join(" ")}
    >
      {picked && (
        <td className="box">
          <Checkbox
            size="xs"
            aria-label="Choose this row"
            checked={picked.ids.has(row.id)}
            disabled={picked.may?.(row) === false}
            onChange={() => pick(picked, row)}
          />
        </td>
      )}
      {columns.map(({ head, cell, right, wide, line }, column) => (
        <td key={head} className={[right && "r", wide && "wide", line && "line"].filter(Boolean).join(" ")}>
          {column === 0 && to ? (
            <Link to={to(row)} className="whole">
              {cell(row)}
            </Link>
          ) : (
            cell(row)
          )}
        </td>
      ))}
    </tr>
  )
})
