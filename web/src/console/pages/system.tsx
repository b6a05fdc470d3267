/** System: whether the networks are read, what waits, and what is wrong, in words. */
import { Link } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { networkTitle } from "../api/facts.ts"
import { useLive } from "../api/live.ts"
import type { Health } from "../api/types.ts"
import { PartNotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { Status } from "../ui/status.tsx"
import { lastingText, Time } from "../ui/time.tsx"

const path = "/api/console/health"

export function System() {
  const query = useLive(["health"], signal => read<Health>(path, {}, signal), { every: 10_000 })
  const health = query.data
  if (!health)
    return (
      <>
        <PageHead title="System" request={{ path }} />
        <PartNotYet query={query} />
      </>
    )
  const alarms = [...health.alarms, ...health.networks.flatMap(({ alarms }) => alarms)]
  const { payouts, deliveries } = health.queue
  return (
    <>
      <PageHead title="System" request={{ path }} of={query} />
      <div className="stack">
        {alarms.length === 0 ? (
          <div className="note good" role="status">
            <div className="strong">Everything works.</div>
          </div>
        ) : (
          alarms.map(each => (
            <div key={each} className="note bad" role="status">
              <div>
                <Alarm text={each} />
              </div>
            </div>
          ))
        )}
        <div className="halves">
          {health.networks.map(({ chain, head, finalized, behind, readAt, payments }) => (
            <section key={chain} className="card pad stack" aria-label={networkTitle(chain)}>
              <div className="row between">
                <h2>{networkTitle(chain)}</h2>
                <Status state={payments === "open" ? "on" : "paused"} />
              </div>
              <Facts
                of={[
                  ["Newest block", head === null ? "not read yet" : Number(head).toLocaleString()],
                  ["Final up to block", finalized === null ? "–" : Number(finalized).toLocaleString()],
                ]}
              />
              {behind !== null && readAt && (
                <p className="quiet">
                  {behind === "0"
                    ? "Up to date."
                    : `${Number(behind).toLocaleString()} ${behind === "1" ? "block" : "blocks"} behind.`}{" "}
                  Last checked <Time at={readAt} />.
                </p>
              )}
            </section>
          ))}
          <section className="card pad stack" aria-label="What waits">
            <h2>What waits</h2>
            <Facts
              of={[
                [
                  "Payouts to be sent",
                  <Count key="q" of={payouts.queued} to="/payouts" search={{ state: "queued" }} />,
                ],
                ["Payouts being sent", String(payouts.sending)],
                ["Payouts on hold", <Count key="h" of={payouts.held} to="/payouts" search={{ state: "held" }} />],
                payouts.oldestAt && ["Oldest since", <Time key="o" at={payouts.oldestAt} />],
                [
                  "Events to be delivered",
                  <Count key="d" of={deliveries.pending} to="/webhooks" search={{ status: "pending" }} />,
                ],
                deliveries.oldestAt && ["Next attempt", <Time key="e" at={deliveries.oldestAt} />],
              ]}
            />
          </section>
        </div>
      </div>
    </>
  )
}

/** How many wait, which leads to them. */
const Count = ({ of, to, search }: { of: number; to: string; search: object }) =>
  of === 0 ? (
    "0"
  ) : (
    <Link to={to} search={search as never}>
      {of}
    </Link>
  )

const TIME = /(\d{4}-\d\d-\d\dT[\d:.]+Z)/
const FAILING = /has failed since (\S+Z)/

/** The server's words, with times as the reader places them. */
function Alarm({ text }: { text: string }) {
  const since = FAILING.exec(text)?.[1]
  return (since ? text.replace(FAILING, `has been failing for ${lastingText(since)}`) : text)
    .split(TIME)
    .map((part, i) => (i % 2 === 1 ? <Time key={part} at={part} /> : part))
}
