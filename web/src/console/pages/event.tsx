/** One event, exactly as it is sent. */
import { Button } from "@mantine/core"
import { Link, useParams } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { useLive } from "../api/live.ts"
import { copyText, Id } from "../ui/copy.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { Moment } from "../ui/time.tsx"

interface Event {
  data: { id: string; event: string; createdAt: string; data: { id?: string } }
}

/** What an event can be about, by the beginning of its id. */
const kinds: Record<string, string> = {
  cs: "checkout",
  pay: "payment",
  po: "payout",
  sub: "subscription",
  inv: "invoice",
}

export function OneEvent() {
  const { id } = useParams({ strict: false }) as { id: string }
  const path = `/api/console/events/${id}`
  const up = { to: "/webhooks", name: "Webhooks" }
  const query = useLive(["event", id], signal => read<Event>(path, {}, signal), { every: 600_000 })
  const event = query.data?.data
  if (!event) return <NotYet query={query} up={up} />
  const body = JSON.stringify(event, null, 2)
  const about = event.data?.id ?? ""
  const kind = kinds[about.slice(0, about.indexOf("_"))]
  return (
    <>
      <PageHead
        of={query}
        title={event.event}
        up={up}
        request={{ path }}
        actions={
          kind && (
            <Button component={Link} to={kind === "subscription" ? `/subscriptions/${about}` : `/payments/${about}`}>
              Open {kind}
            </Button>
          )
        }
      />
      <div className="two">
        <section className="card pad stack tight">
          <div className="row between">
            <h2>As it is sent</h2>
            <Button size="xs" onClick={() => copyText(body, "Event")}>
              Copy
            </Button>
          </div>
          <pre className="code">{body}</pre>
        </section>
        <section className="card pad" aria-label="Facts">
          <Facts
            of={[
              ["Emitted", <Moment key="e" at={event.createdAt} />],
              ["Id", <Id key="i" value={event.id} />],
            ]}
          />
        </section>
      </div>
    </>
  )
}
