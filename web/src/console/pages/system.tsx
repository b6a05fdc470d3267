/** System: whether the networks are read, what waits, and what is wrong, in words. */
import { Link } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { networkTitle } from "../api/facts.ts"
import { useLive } from "../api/live.ts"
import type { Health } from "../api/types.ts"
import { PartNotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"

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
                  ["Final up to", finalized === null ? "–" : Number(finalized).toLocaleString()],
                  [
                    "Behind",
                    behind === null
                      ? "–"
                      : behind === "0"
                        ? "nothing"
                        : `${Number(behind).toLocaleString()} ${behind === "1" ? "block" : "blocks"}`,
                  ],
                  readAt && ["Read", <Time key="r" at={readAt} />],
                ]}
              />
            </section>
          ))}
          <section className="card pad stack" aria-label="What waits">
            <h2>What waits</h2>
            <Facts
              of={[
                [
                  "Payouts to be sent",
                  <Link key="q" to="/payouts" search={{ state: "queued" } as never}>
                    {payouts.queued}
                  </Link>,
                ],
                ["Payouts being sent", String(payouts.sending)],
                [
                  "Payouts on hold",
                  <Link key="h" to="/payouts" search={{ state: "held" } as never}>
                    {payouts.held}
                  </Link>,
                ],
                payouts.oldestAt && ["Oldest since", <Time key="o" at={payouts.oldestAt} />],
                [
                  "Events to be delivered",
                  <Link key="d" to="/webhooks" search={{ status: "pending" } as never}>
                    {deliveries.pending}
                  </Link>,
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

const TIME = /(\d{4}-\d\d-\d\dT[\d:.]+Z)/

/** The server's words, with times as the reader places them. */
const Alarm = ({ text }: { text: string }) =>
  text.split(TIME).map((part, i) => (i % 2 === 1 ? <Time key={part} at={part} /> : part))
