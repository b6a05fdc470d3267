/** One delivery: every attempt with its answer, and the event as it was sent. */
import { Button } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { useParams } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { retries, useLive } from "../api/live.ts"
import { useRight } from "../api/me.ts"
import type { DeliveryAttempt, DeliveryWithAttempts } from "../api/types.ts"
import { copyText, Id } from "../ui/copy.tsx"
import { IdLink } from "../ui/linked.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Status } from "../ui/status.tsx"
import { Moment, Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"
import { stateOfDelivery } from "./webhooks.tsx"

interface Event {
  data: { id: string; event: string; createdAt: string; data: unknown }
}

export function OneDelivery() {
  const { id } = useParams({ strict: false }) as { id: string }
  const path = `/api/console/deliveries/${id}`
  const may = useRight("webhooks")
  const query = useLive(["delivery", id], signal => read<{ data: DeliveryWithAttempts }>(path, {}, signal))
  const delivery = query.data?.data
  const event = useQuery({
    queryKey: ["event", delivery?.eventId],
    queryFn: ({ signal }) => read<Event>(`/api/console/events/${delivery?.eventId}`, {}, signal),
    enabled: delivery !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    ...retries,
  })
  const resend = useAct({ done: "It is being resent" })
  if (!delivery) return <NotYet query={query} up={{ to: "/webhooks", name: "Webhooks" }} />
  const body = event.data ? JSON.stringify(event.data.data, null, 2) : ""
  const last = delivery.log.at(-1)
  return (
    <>
      <PageHead
        of={query}
        title={delivery.event}
        up={{ to: "/webhooks", name: "Webhooks" }}
        request={{ path }}
        head={
          <>
            <span className="figure">{delivery.event}</span>
            <Status state={stateOfDelivery(delivery)} />
          </>
        }
        actions={
          may ? (
            <Button
              variant="filled"
              loading={resend.isPending}
              onClick={() => resend.mutate({ method: "POST", path: `${path}/resend` })}
            >
              Send again
            </Button>
          ) : (
            <NoRight right="webhooks" />
          )
        }
      />
      <WhyNot delivery={delivery} last={last} />
      <div className="two">
        <div className="stack">
          <section className="card pad stack">
            <h2>Attempts</h2>
            {delivery.log.length === 0 && (
              <p className="quiet">Nothing has been sent yet. The first attempt follows within a second.</p>
            )}
            <ol className="story">
              {delivery.log.map(attempt => (
                <Attempt key={attempt.at} attempt={attempt} />
              ))}
            </ol>
          </section>
          <section className="card pad stack tight">
            <div className="row between">
              <h2>What was sent</h2>
              {body && (
                <Button size="xs" onClick={() => copyText(body, "Event")}>
                  Copy
                </Button>
              )}
            </div>
            {event.error ? (
              <p className="bad">The event could not be loaded.</p>
            ) : (
              <pre className="code">{body || " "}</pre>
            )}
          </section>
        </div>
        <section className="card pad" aria-label="Facts">
          <Facts
            of={[
              [
                "To",
                <span key="u" className="mono">
                  <Url url={delivery.url} />
                </span>,
              ],
              delivery.webhookId && ["Endpoint", <IdLink key="w" to="/webhooks" id={delivery.webhookId} />],
              delivery.sessionId && ["About", <IdLink key="s" to="/checkouts" id={delivery.sessionId} />],
              ["Created", <Time key="c" at={delivery.createdAt} />],
              delivery.nextAttemptAt && ["Next attempt", <Time key="n" at={delivery.nextAttemptAt} />],
              ["Event", <Id key="e" value={delivery.eventId} />],
              ["Id", <Id key="i" value={delivery.id} />],
            ]}
          />
        </section>
      </div>
    </>
  )
}

/** An address that breaks after a slash, and inside a word only where it must. */
const Url = ({ url }: { url: string }) =>
  url.split(/(?<=[^:/]\/)/).map(part => (
    <span key={part} style={{ display: "inline-block" }}>
      {part}
    </span>
  ))

/** Why the server did not get it, and what to do. */
function WhyNot({ delivery, last }: { delivery: DeliveryWithAttempts; last: DeliveryAttempt | undefined }) {
  if (delivery.status === "delivered" || !last) return null
  const what =
    last.status === null
      ? `Your server did not answer: ${last.error ?? "no connection"}.`
      : `Your server answered ${last.status}. Only a status from 200 to 299 counts as accepted.`
  const next =
    delivery.status === "pending"
      ? "The delivery is retried automatically."
      : delivery.status === "failed"
        ? "All attempts have failed. Repair the endpoint, then resend the event."
        : "The endpoint was switched off, so the event was not sent."
  return (
    <div
      className={`note ${delivery.status === "pending" ? "wait" : "bad"}`}
      role="status"
      style={{ marginBottom: 16 }}
    >
      <div>
        <span className="strong">{what}</span> {next}
      </div>
    </div>
  )
}

function Attempt({ attempt: { at, durationMs, status, error, answer } }: { attempt: DeliveryAttempt }) {
  const isTaken = status !== null && status >= 200 && status < 300
  return (
    <li>
      <i className={isTaken ? "good" : "bad"} />
      <div>
        <span className="strong">{status === null ? "No answer" : `Answer ${status}`}</span>
        {error && <span> · {error}</span>}
      </div>
      <div className="quiet num">
        <Moment at={at} /> · {durationMs} ms
      </div>
      {answer && <pre className="code">{answer}</pre>}
    </li>
  )
}
