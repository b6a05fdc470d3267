/**
 * A list that is kept current: its first page is read again and again, further pages stay as they were. New rows wait until the
 * reader is at the top, so that nothing moves under a pointer.
 */
import { useQueries } from "@tanstack/react-query"
import { useRouterState } from "@tanstack/react-router"
import { useEffect, useRef, useState } from "react"
import { useLive } from "../api/live.ts"
import type { Page } from "../api/types.ts"

interface Row {
  id: string
}

export interface Listed<T> {
  rows: T[] | undefined
  total: number
  /** Whether the total is only a lower bound. */
  isLeast: boolean
  /** Rows that wait to be shown. */
  waiting: number
  show: () => void
  fresh: ReadonlySet<string>
  more: (() => void) | undefined
  isLoadingMore: boolean
  error: unknown
  asOf: number
  retry: () => void
  hold: (isHeld: boolean) => void
}

const AT_TOP = 40
/** The first page is soon there; whoever wants more wants many, and each page is one of the 60 requests of a minute. */
const FIRST_ROWS = 50
const MORE_ROWS = 100

/** How far each list was read, by the entry of the browser's history: "back" finds the list as long as it was left. */
const readTo = new Map<string, string[]>()
const MOST_KEPT = 50

function keepRead(place: string, cursors: string[]): void {
  readTo.delete(place)
  readTo.set(place, cursors)
  const [oldest] = readTo.keys()
  if (readTo.size > MOST_KEPT && oldest !== undefined) readTo.delete(oldest)
}

export function useList<T extends Row>(
  key: readonly unknown[],
  ask: (page: { limit: number; after?: string }, signal: AbortSignal) => Promise<Page<T>>,
  options: { enabled?: boolean } = {},
): Listed<T> {
  const name = JSON.stringify(key)
  const first = useLive([...key], signal => ask({ limit: FIRST_ROWS }, signal), { ...options, keep: true })
  const place = `${useRouterState({ select: ({ location }) => location.state.__TSR_key })} ${name}`
  const [cursors, setCursors] = useState<{ place: string; list: string[] }>()
  const list = (cursors?.place === place ? cursors.list : readTo.get(place)) ?? []
  const readFurther = (list: string[]) => {
    keepRead(place, list)
    setCursors({ place, list })
  }
  const later = useQueries({
    queries: list.map(after => ({
      queryKey: [...key, after],
      queryFn: ({ signal }: { signal: AbortSignal }) => ask({ limit: MORE_ROWS, after }, signal),
      staleTime: Number.POSITIVE_INFINITY,
    })),
  })
  const held = useRef(false)
  const [shown, setShown] = useState<{ name: string; page: Page<T>; fresh: Set<string> } | undefined>()
  const page = first.data
  const current = shown?.name === name ? shown : undefined
  const known = new Set(current?.page.data.map(({ id }) => id))
  const unseen = current && page ? page.data.filter(({ id }) => !known.has(id)) : []
  const mayMove = unseen.length === 0 || (scrollY < AT_TOP && !held.current && list.length === 0)

  useEffect(() => {
    if (!page || first.isPlaceholderData || !mayMove) return
    setShown(before => ({
      name,
      page,
      fresh: new Set(
        before?.name === name
          ? page.data.filter(({ id }) => !before.page.data.some(each => each.id === id)).map(({ id }) => id)
          : [],
      ),
    }))
  }, [page, name, mayMove, first.isPlaceholderData])

  // What is shown already is still brought up to date in its place.
  const updated = new Map(page?.data.map(row => [row.id, row]))
  const top = (current?.page ?? page)?.data.map(row => updated.get(row.id) ?? row)
  const rows = top && [
    ...new Map([...top, ...later.flatMap(({ data }) => data?.data ?? [])].map(r => [r.id, r])).values(),
  ]
  const next = list.length > 0 ? later.at(-1)?.data?.next : (current?.page ?? page)?.next
  const isLoadingMore = later.some(({ isPending }) => isPending)
  return {
    rows,
    total: page?.total ?? 0,
    isLeast: page?.totalIsLeast === true,
    waiting: mayMove ? 0 : unseen.length,
    show: () => {
      scrollTo({ top: 0 })
      readFurther([])
      if (page) setShown({ name, page, fresh: new Set(unseen.map(({ id }) => id)) })
    },
    fresh: current?.fresh ?? new Set(),
    // While a page comes it is not known whether another follows: what is there stays "of more".
    more: isLoadingMore ? () => undefined : next === undefined ? undefined : () => readFurther([...list, next]),
    isLoadingMore,
    error: first.error ?? later.find(({ error }) => error)?.error ?? null,
    asOf: first.dataUpdatedAt,
    retry: () => void first.refetch(),
    hold: isHeld => {
      held.current = isHeld
    },
  }
}
