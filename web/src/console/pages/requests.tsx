/** The request log: what your servers and people asked for, what was refused, and why. */
import { Button, TextInput } from "@mantine/core"
import { useQuery } from "@tanstack/react-query"
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router"
import { useState } from "react"
import { read } from "../api/client.ts"
import { retries, useLive } from "../api/live.ts"
import type { ApiKey, LoggedRequest, Page } from "../api/types.ts"
import { Chips, PickChip } from "../ui/chips.tsx"
import { Coded } from "../ui/coded.tsx"
import { Id, shortId } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { PageHead } from "../ui/page.tsx"
import { Time } from "../ui/time.tsx"
import { wholeList } from "../ui/whole-list.ts"

type Row = LoggedRequest & { id: string }
type Status = "refused" | "2xx" | "4xx" | "5xx"

const path = "/api/console/requests"
const choices = [
  ["refused", "Refused"],
  ["2xx", "Answered"],
  ["4xx", "4xx"],
  ["5xx", "5xx"],
] as const

const callers = [
  ["", "By your servers"],
  ["person", "By people"],
  ["anyone", "By anyone"],
] as const

const toneOf = (status: number): string => (status >= 500 ? "bad" : status >= 400 ? "wait" : "good")

/** An answer of at most 1 KB: the beginning of one, where it was longer. */
const MESSAGE = /"message":"((?:[^"\\]|\\.)*)"/g

/** Why it was refused: what is wrong with each field, or else the answer's message. */
function refusalOf({ refusal }: Pick<LoggedRequest, "refusal">): string[] {
  if (refusal === null) return []
  const [message = refusal, ...faults] = [...refusal.matchAll(MESSAGE)].map(
    ([, text]) => JSON.parse(`"${text}"`) as string,
  )
  return faults.length > 0 ? faults : [message]
}

const useKeyNames = () =>
  useQuery({
    queryKey: ["key-names"],
    queryFn: async ({ signal }) => {
      const { data } = await read<Page<ApiKey>>("/api/console/api-keys", { limit: 100 }, signal)
      return new Map(data.map(each => [each.id, each.name]))
    },
    staleTime: 60_000,
    ...retries,
  })

/** A key by its name, which leads to the requests that came with it; by its id where it is revoked. */
function KeyName({ id }: { id: string }) {
  const { data } = useKeyNames()
  return (
    <Link to="/requests" search={{ key: id } as never} className="plain-link over" title={`Only what came with ${id}`}>
      {data?.get(id) ?? shortId(id)}
    </Link>
  )
}

const columns: Column<Row>[] = [
  {
    head: "Request",
    width: 26,
    cell: row => (
      <span className="mono">
        <b>{row.method}</b> {row.route}
      </span>
    ),
  },
  { head: "Status", width: 5, cell: row => <span className={`pill ${toneOf(row.status)} num`}>{row.status}</span> },
  {
    head: "Why",
    width: 24,
    cell: row => (
      <div className="cut second">
        <Coded text={refusalOf(row)[0] ?? row.code ?? ""} />
      </div>
    ),
  },
  {
    head: "By",
    width: 8,
    wide: true,
    cell: ({ keyId, personId }) =>
      keyId ? <KeyName id={keyId} /> : <span className="quiet">{personId ? "a person" : "nobody known"}</span>,
  },
  { head: "Took", width: 6, wide: true, right: true, cell: row => <span className="num">{row.durationMs} ms</span> },
  { head: "When", width: 8, right: true, cell: row => <Time at={row.at} /> },
]

/** Two requests can have one id, as the caller may choose it. */
const rowId = (row: LoggedRequest): string => `${row.requestId} ${row.at}`

export function Requests() {
  const { status, by, key } = useSearch({ strict: false }) as {
    status?: Status
    by?: "person" | "anyone"
    key?: string
  }
  const navigate = useNavigate()
  const [typed, setTyped] = useState("")
  // An open console reads all day, so a developer's own requests come first.
  const caller = key ? { key } : by === "anyone" ? {} : { by: by ?? "key" }
  const query = { ...(status ? { status } : {}), ...caller }
  const list = usePages<Row>(path, query, rowId)
  const { data: names } = useKeyNames()
  const keys = [...new Map([...(key ? [[key, shortId(key)] as const] : []), ...(names ?? [])])]
  const set = (more: { status?: string | undefined; by?: string | undefined; key?: string | undefined }) => {
    const search = Object.fromEntries(Object.entries({ status, by, key, ...more }).filter(([, value]) => value))
    void navigate({ to: "/requests", search: search as never, replace: true })
  }
  const setCaller = (value: string | undefined) =>
    set(value?.startsWith("key_") ? { by: undefined, key: value } : { by: value, key: undefined })
  const words = [
    status && `the status “${choices.find(([each]) => each === status)?.[1]}”`,
    key
      ? `the key “${names?.get(key) ?? shortId(key)}”`
      : by && `the filter “${callers.find(([each]) => each === by)?.[1]}”`,
  ].filter(Boolean)
  return (
    <>
      <PageHead title="Requests" request={{ path, query }} />
      <div className="chips">
        <Chips name="Status" choices={choices} value={status} set={status => set({ status })} />
        <PickChip name="By" choices={[...callers, ...keys]} value={key ?? by} set={setCaller} />
        <form
          className="grow"
          onSubmit={event => {
            event.preventDefault()
            if (typed.trim() !== "") void navigate({ to: "/requests/$id", params: { id: typed.trim() } })
          }}
        >
          <TextInput
            size="xs"
            aria-label="The id of a request"
            placeholder="Find by X-Request-Id, then Enter"
            value={typed}
            onChange={event => setTyped(event.currentTarget.value)}
          />
        </form>
      </div>
      <section className="card" aria-label="List">
        <DataTable
          name="requests"
          columns={columns}
          list={list}
          to={({ requestId }) => `/requests/${encodeURIComponent(requestId)}`}
          filtered={
            words.length > 0
              ? { words: words.join(" and "), clear: () => void navigate({ to: "/requests", search: {} as never }) }
              : undefined
          }
          empty={
            <>
              <h2>No requests by a server yet</h2>
              <p>Requests with your API keys are kept here for 30 days, with the reason for each refusal.</p>
              <Button onClick={() => set({ by: "anyone" })}>See those by people, too</Button>
            </>
          }
        />
      </section>
    </>
  )
}

export function OneRequest() {
  const { id } = useParams({ strict: false }) as { id: string }
  const own = `${path}/${encodeURIComponent(id)}`
  const query = useLive(["request", id], async signal =>
    (await read<{ data: LoggedRequest[] }>(own, {}, signal)).data.map(row => ({ ...row, id: rowId(row) })),
  )
  const refusals = query.data?.filter(({ refusal }) => refusal !== null) ?? []
  const [first, ...others] = query.data ?? []
  const title = first && others.length === 0 ? `${first.method} ${first.route} · ${first.status}` : `Request ${id}`
  return (
    <>
      <PageHead title={title} up={{ to: "/requests", name: "Requests" }} request={{ path: own }} />
      <p className="lead quiet">
        Request <Id value={id} whole />
      </p>
      <div className="stack">
        {refusals.map(row => (
          <div key={row.id} className="note wait" role="status">
            <div>
              {refusalOf(row).map(text => (
                <p key={text} className="strong" style={{ overflowWrap: "anywhere" }}>
                  <Coded text={text} />
                </p>
              ))}
              {row.code && <p className="mono">{row.code}</p>}
            </div>
          </div>
        ))}
        <section className="card" aria-label="List">
          <DataTable
            name="requests"
            // Each refusal stands above.
            columns={columns.filter(({ head }) => head !== "Why")}
            list={wholeList(query)}
            empty={<p>No request of the last 30 days has this id.</p>}
          />
        </section>
      </div>
    </>
  )
}
