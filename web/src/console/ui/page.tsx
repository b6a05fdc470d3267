/** What each page begins with: its title, its actions, the title of the window. */
import { Button } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { type ReactNode, useEffect } from "react"
import type { Shown } from "../api/curl.ts"
import { useNeedsCount } from "../api/needs.ts"
import { copyCurl } from "./copy.tsx"
import { Stale } from "./problem.tsx"
import { ZoneNote } from "./time.tsx"

interface Given {
  title: string
  /** In place of the title, where money is the title. */
  head?: ReactNode
  /** The list that it is of. */
  up?: { to: string; name: string }
  /** The page's own request, to be copied as curl. */
  request?: Shown | undefined
  actions?: ReactNode
  /** The page's own read: where it failed and the page shows what was before, the head says so. */
  of?: Read
}

/** What the head needs to know of a read. */
export interface Read {
  data: unknown
  error: unknown
  dataUpdatedAt: number
  refetch: () => unknown
}

export function PageHead({ title, head, up, request, actions, of }: Given) {
  const count = useNeedsCount()
  useEffect(() => {
    document.title = `${count ? `(${count}) ` : ""}${title} · Sluice`
  }, [title, count])
  return (
    <header>
      {up && (
        <div className="crumb">
          <Link to={up.to}>{up.name}</Link> / <span>{title}</span>
          <ZoneNote />
        </div>
      )}
      <div className="bar">
        {head ? (
          <div className="row">
            <h1 className="unseen">{title}</h1>
            {head}
            {!up && <ZoneNote />}
          </div>
        ) : (
          <div className="row titled">
            <h1>{title}</h1>
            {!up && <ZoneNote />}
          </div>
        )}
        <div className="row">
          {request && (
            <Button variant="subtle" color="gray" className="plain" onClick={() => copyCurl(request)}>
              Copy as curl
            </Button>
          )}
          {actions}
        </div>
      </div>
      {of?.error && of.data ? <Stale error={of.error} asOf={of.dataUpdatedAt} retry={() => void of.refetch()} /> : null}
    </header>
  )
}

/** A file to be saved, such as a CSV, which has its times in UTC wherever it is opened. */
export const LinkButton = ({ href, children }: { href: string; children: string }) => (
  <Button
    component="a"
    href={href}
    download
    title={/\.csv(\?|$)/.test(href) ? "Times in the file are in UTC" : undefined}
    style={{ flex: "none" }}
  >
    {children}
  </Button>
)

/** Facts by name, the value at the end of the line. */
export function Facts({ of }: { of: (readonly [string, ReactNode] | false | null | undefined | "")[] }) {
  return (
    <dl className="facts">
      {of.map(
        fact =>
          fact && (
            <div key={fact[0]} style={{ display: "contents" }}>
              <dt>{fact[0]}</dt>
              <dd>{fact[1]}</dd>
            </div>
          ),
      )}
    </dl>
  )
}
