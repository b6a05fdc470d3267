/** Webhooks: the endpoints, and what was sent to them. */
import { Button } from "@mantine/core"
import type { UseQueryResult } from "@tanstack/react-query"
import { Link, useNavigate, useSearch } from "@tanstack/react-router"
import { GET, taken } from "../api/client.ts"
import { useLive } from "../api/live.ts"
import type { Delivery, Page, Webhook } from "../api/types.ts"
import { Chips } from "../ui/chips.tsx"
import { Id } from "../ui/copy.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { eventsText } from "../ui/events-input.tsx"
import { PageHead } from "../ui/page.tsx"
import { Problem } from "../ui/problem.tsx"
import { Status } from "../ui/status.tsx"
import { Time } from "../ui/time.tsx"
import { useList } from "../ui/use-list.ts"

export interface WebhooksSearch {
  status?: Delivery["status"]
}

const states = [
  ["pending", "Waiting"],
  ["delivered", "Delivered"],
  ["failed", "Failed"],
  ["skipped", "Skipped"],
] as const

const hostAndPath = (url: string): string => url.replace(/^https?:\/\//, "")

/** A delivery that failed and is tried again is not like one that has yet to be sent. */
export const stateOfDelivery = ({ status, attempts }: Pick<Delivery, "status" | "attempts">): string =>
  status === "pending" && attempts > 0 ? "retrying" : status

const target: Column<Delivery> = {
  head: "To",
  width: 24,
  wide: true,
  cell: row => <div className="cut quiet">{hostAndPath(row.url)}</div>,
}

/** The columns of deliveries; where they go is left out of a list of one endpoint. */
export const deliveryColumns = (isOfAll: boolean): Column<Delivery>[] => [
  {
    head: "Event",
    width: 24,
    cell: row => (
      <>
        <div className="strong">{row.event}</div>
        {isOfAll && <div className="narrow quiet cut">{hostAndPath(row.url)}</div>}
      </>
    ),
  },
  { head: "State", width: 8, cell: row => <Status state={stateOfDelivery(row)} /> },
  {
    head: "About",
    width: 12,
    wide: true,
    cell: row => (row.sessionId ? <Id value={row.sessionId} /> : <span className="quiet">–</span>),
  },
  ...(isOfAll ? [target] : []),
  {
    head: "Attempts",
    width: 4,
    wide: true,
    right: true,
    cell: row => (
      <span className="num">
        {row.attempts}
        {row.nextAttemptAt && row.status === "pending" && (
          <span className="quiet">
            {" "}
            · again <Time at={row.nextAttemptAt} />
          </span>
        )}
      </span>
    ),
  },
  { head: "When", width: 8, right: true, cell: row => <Time at={row.createdAt} /> },
]

export function Webhooks() {
  const { status } = useSearch({ strict: false }) as WebhooksSearch
  const navigate = useNavigate()
  const query = status ? { status } : {}
  const endpoints = useLive(
    ["webhooks"],
    async signal =>
      (await taken(GET("/api/console/webhooks", { params: { query: { limit: 100 } }, signal }))).data.webhooks,
    { every: 15_000 },
  )
  const list = useList<Delivery>(
    ["deliveries", query],
    (part, signal) =>
      taken(
        GET("/api/console/deliveries", {
          params: { query: { ...query, ...part } },
          signal,
        }),
      ) as Promise<Page<Delivery>>,
  )
  const set = (next: WebhooksSearch) => void navigate({ to: "/webhooks", search: next as never, replace: true })
  return (
    <>
      <PageHead
        title="Webhooks"
        request={{ path: "/api/console/deliveries", query }}
        actions={
          <>
            <Button component={Link} to="/event-types">
              Events
            </Button>
            <Button component={Link} to="/listeners">
              Listeners
            </Button>
            <Button variant="filled" component={Link} to="/webhooks/new">
              Add endpoint
            </Button>
          </>
        }
      />
      <div className="stack">
        <section className="card" aria-label="Endpoints">
          <div className="pad head">
            <h2>Endpoints</h2>
          </div>
          <Endpoints query={endpoints} deliveries={list.rows ?? []} />
        </section>
        <section className="card" aria-label="Deliveries">
          <div className="pad head">
            <h2>Deliveries</h2>
            <Chips
              name="State"
              choices={states}
              value={status as never}
              set={each => set(each ? { status: each } : {})}
            />
          </div>
          <DataTable
            name="deliveries"
            columns={deliveryColumns(true)}
            list={list}
            to={({ id }) => `/webhooks/deliveries/${id}`}
            filtered={
              status
                ? { words: `the state “${states.find(([each]) => each === status)?.[1]}”`, clear: () => set({}) }
                : undefined
            }
            empty={
              <>
                <h2>Nothing has been sent yet</h2>
                <p>As soon as something is paid, each event appears here with every attempt and every answer.</p>
              </>
            }
          />
        </section>
      </div>
    </>
  )
}

type Endpoint = Pick<Webhook, "id" | "url" | "events" | "active">

function Endpoints({ query, deliveries }: { query: UseQueryResult<Endpoint[]>; deliveries: Delivery[] }) {
  /** Whether the newest delivery that was tried there was not taken. */
  const isFailing = (id: string): boolean => {
    const newest = deliveries.find(({ webhookId, attempts }) => webhookId === id && attempts > 0)
    return newest !== undefined && newest.status !== "delivered"
  }
  if (!query.data && query.error) return <Problem error={query.error} retry={() => void query.refetch()} />
  if (!query.data)
    return (
      <div className="pad late rule">
        <span className="bone" style={{ width: "40%" }} />
      </div>
    )
  if (query.data.length === 0)
    return (
      <div className="state rule">
        <p>
          Your server learns of each payment through an event to its endpoint. The event is signed, and retried until
          your server accepts it.
        </p>
        <Button component={Link} to="/webhooks/new">
          Add endpoint
        </Button>
      </div>
    )
  return query.data.map(({ id, url, events, active }) => (
    <Link key={id} to="/webhooks/$id" params={{ id }} className="todo">
      <span className="cut" style={{ flex: "1 1 auto" }}>
        <span className="strong">{hostAndPath(url)}</span>
        <br />
        <span className="quiet">{eventsText(events)}</span>
      </span>
      <Status state={active ? (isFailing(id) ? "failing" : "on") : "off"} />
    </Link>
  ))
}
