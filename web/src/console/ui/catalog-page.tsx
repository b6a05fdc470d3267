/** One thing that is sold, to be changed: its form at the left, its address and switch at the right. */
import { Button } from "@mantine/core"
import type { UseQueryResult } from "@tanstack/react-query"
import { useNavigate } from "@tanstack/react-router"
import type { ReactNode } from "react"
import { useRight } from "../api/me.ts"
import { More } from "./more.tsx"
import { NotYet } from "./not-yet.tsx"
import { PageHead } from "./page.tsx"
import { NoRight } from "./problem.tsx"
import { Status } from "./status.tsx"
import { isSure } from "./sure.ts"
import { useAct } from "./use-act.ts"

interface Given<T> {
  query: UseQueryResult<T>
  up: { to: string; name: string }
  path: string
  nameOf: (thing: T) => string
  /** What it costs, below its name. */
  priceOf?: (thing: T) => ReactNode
  /** Said before it is switched off or deleted. */
  offWords: string
  form: (thing: T) => ReactNode
  rail: (thing: T) => ReactNode
  /** What else can be done with it. */
  more?: (thing: T) => ReactNode
  canDelete?: boolean
}

export function CatalogPage<T extends { active: boolean }>(given: Given<T>) {
  const { query, up, path, nameOf, priceOf, offWords, form, rail, more, canDelete = true } = given
  const may = useRight("catalog")
  const navigate = useNavigate()
  const change = useAct({})
  const thing = query.data
  if (!thing) return <NotYet query={query} up={up} />
  const toggle = async () => {
    if (thing.active && !(await isSure({ title: "Switch it off?", words: offWords, yes: "Switch off" }))) return
    change.mutate({ method: "PUT", path, body: { active: !thing.active } })
  }
  const remove = async () => {
    const words = `${offWords} What was paid stays in your books.`
    if (!(await isSure({ title: "Delete it?", words, yes: "Delete" }))) return
    change.mutate({ method: "DELETE", path }, { onSuccess: () => void navigate({ to: up.to }) })
  }
  return (
    <>
      <PageHead
        of={query}
        title={nameOf(thing)}
        up={up}
        request={{ path }}
        head={
          <>
            <span className="figure">{nameOf(thing)}</span>
            <Status state={thing.active ? "on" : "off"} />
            {priceOf && <div className="second subline">{priceOf(thing)}</div>}
          </>
        }
        actions={
          may ? (
            <>
              <Button onClick={toggle} loading={change.isPending}>
                {thing.active ? "Switch off" : "Switch on"}
              </Button>
              {more?.(thing)}
              {canDelete && <More items={[{ name: "Delete", act: remove, isBad: true }]} />}
            </>
          ) : (
            <NoRight right="catalog" />
          )
        }
      />
      <div className="two">
        <section className="card pad" aria-label="Change it">
          {form(thing)}
        </section>
        <div className="stack">{rail(thing)}</div>
      </div>
    </>
  )
}
