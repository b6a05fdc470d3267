/** The catalogue of events: when each is sent and to whom, an example, and the schema of its body. */
import { Button } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { useNavigate, useParams } from "@tanstack/react-router"
import { read } from "../api/client.ts"
import { retries } from "../api/live.ts"
import type { EventTypeInfo } from "../api/types.ts"
import { Coded } from "../ui/coded.tsx"
import { copyText } from "../ui/copy.tsx"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { PageHead } from "../ui/page.tsx"
import { SchemaFields } from "../ui/schema-fields.tsx"
import { wholeList } from "../ui/whole-list.ts"

const path = "/api/console/event-types"

const useTypes = () =>
  useQuery({
    queryKey: ["event-types"],
    queryFn: async ({ signal }) =>
      (await read<{ data: EventTypeInfo[] }>(path, {}, signal)).data.map(each => ({
        ...each,
        id: each.type as string,
      })),
    staleTime: Number.POSITIVE_INFINITY,
    ...retries,
  })

/** The API's words end without a full stop. */
const sentences = (text: string): string[] => text.split(/(?<=\.) /).map(each => each.replace(/([^.])$/, "$1."))

const firstOf = ({ summary }: EventTypeInfo): string => sentences(summary)[0] ?? ""

const columns: Column<EventTypeInfo & { id: string }>[] = [
  {
    head: "Event",
    width: 22,
    cell: row => (
      <>
        <div className="strong mono">{row.type}</div>
        <div className="narrow second">
          <Coded text={firstOf(row)} />
        </div>
      </>
    ),
  },
  {
    head: "When it is sent",
    width: 40,
    wide: true,
    cell: row => (
      <span className="second">
        <Coded text={firstOf(row)} />
      </span>
    ),
  },
]

export function EventTypes() {
  const query = useTypes()
  // A ping only tries an endpoint, which can't ask for it.
  const list = wholeList(query)
  return (
    <>
      <PageHead title="Events" up={{ to: "/webhooks", name: "Webhooks" }} request={{ path }} />
      <section className="card" aria-label="List">
        <DataTable
          name="events"
          columns={columns}
          list={{ ...list, rows: list.rows?.filter(({ id }) => id !== "ping") }}
          to={({ id }) => `/event-types/${id}`}
          empty={<p>There is no event.</p>}
        />
      </section>
    </>
  )
}

export function OneEventType() {
  const { id } = useParams({ strict: false }) as { id: string }
  const query = useTypes()
  const navigate = useNavigate()
  const up = { to: "/event-types", name: "Events" }
  const type = query.data?.find(each => each.id === id)
  if (!query.data) return <NotYet query={query} up={up} />
  if (!type)
    return (
      <div className="state">
        <h1>There is no event of this name</h1>
        <Button onClick={() => void navigate({ to: up.to })}>All events</Button>
      </div>
    )
  return (
    <>
      <PageHead title={id} up={up} />
      <p className="second lead">
        <Coded text={[...sentences(type.summary), ...sentences(type.recipients)].join(" ")} />
      </p>
      <div className="halves">
        <section className="card pad stack tight" aria-label="Example">
          <div className="row between">
            <h2>Example</h2>
            <Button size="xs" onClick={() => copyText(JSON.stringify(type.example, null, 2), "Example")}>
              Copy
            </Button>
          </div>
          <pre className="code">{JSON.stringify(type.example, null, 2)}</pre>
        </section>
        <section className="card pad stack tight" aria-label="Fields">
          <div className="row between">
            <h2>Fields</h2>
            <Button size="xs" onClick={() => copyText(JSON.stringify(type.schema, null, 2), "JSON Schema")}>
              Copy the JSON Schema
            </Button>
          </div>
          <SchemaFields schema={type.schema} />
        </section>
      </div>
    </>
  )
}
