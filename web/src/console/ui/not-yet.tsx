/** In place of a thing that is not there: its shape while it loads, or why it could not be loaded. The way to its list stays. */
import { PageHead, type Read } from "./page.tsx"
import { Problem, titleOf } from "./problem.tsx"

interface Given {
  query: Read
  /** The list that it is of. */
  up: { to: string; name: string }
}

export function NotYet({ query, up }: Given) {
  if (query.error)
    return (
      <>
        <PageHead title={titleOf(query.error)} up={up} head={<span />} />
        <section className="card">
          <Problem error={query.error} retry={() => void query.refetch()} />
        </section>
      </>
    )
  return (
    <div className="late" role="status" aria-label="Loading">
      <PageHead title="…" up={up} head={<span className="bone" style={{ width: 240, height: 28 }} />} />
      <div className="two" aria-hidden="true">
        <section className="card pad stack">
          {[60, 54, 48, 42].map(width => (
            <span key={width} className="bone" style={{ width: `${width}%` }} />
          ))}
        </section>
        <section className="card pad stack">
          {[80, 60, 70].map(width => (
            <span key={width} className="bone" style={{ width: `${width}%` }} />
          ))}
        </section>
      </div>
      <StillWaiting />
    </div>
  )
}

/** In place of a card of a page, whose head is there already. */
export function PartNotYet({ query }: Pick<Given, "query">) {
  if (query.error)
    return (
      <section className="card">
        <Problem error={query.error} retry={() => void query.refetch()} />
      </section>
    )
  return (
    <section className="card pad stack late" role="status" aria-label="Loading">
      {[30, 50, 42].map(width => (
        <span key={width} className="bone" style={{ width: `${width}%` }} />
      ))}
      <StillWaiting />
    </section>
  )
}

/** Said after 5 s, by the styles alone. */
export const StillWaiting = () => <p className="still quiet">The server is taking longer than usual to answer.</p>
