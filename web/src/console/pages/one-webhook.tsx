/** One endpoint: what it gets, what became of it, a test, and what failed sent again. */
import { Button, TextInput } from "@mantine/core"
import { useNavigate, useParams } from "@tanstack/react-router"
import { useState } from "react"
import { GET, read, taken } from "../api/client.ts"
import { useLive } from "../api/live.ts"
import { useRight } from "../api/me.ts"
import type { Delivery, Page, Webhook } from "../api/types.ts"
import { Id } from "../ui/copy.tsx"
import { DataTable } from "../ui/data-table.tsx"
import { allEvents, EventsInput } from "../ui/events-input.tsx"
import { RequestForm } from "../ui/form.tsx"
import { later } from "../ui/later.tsx"
import { More } from "../ui/more.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Secret } from "../ui/secret.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"
import { useList } from "../ui/use-list.ts"
import { deliveryColumns } from "./webhooks.tsx"

const up = { to: "/webhooks", name: "Webhooks" }
const DAY_MS = 86_400_000
const Stats = later(async () => (await import("../ui/webhook-stats.tsx")).default)

export function OneWebhook() {
  const { id } = useParams({ strict: false }) as { id: string }
  const path = `/api/console/webhooks/${id}`
  const navigate = useNavigate()
  const may = useRight("webhooks")
  const query = useLive(["webhook", id], signal => read<{ data: Webhook }>(path, {}, signal), { every: 10_000 })
  const list = useList<Delivery>(
    ["deliveries", { webhookId: id }],
    (part, signal) =>
      taken(
        GET("/api/console/deliveries", {
          params: { query: { webhookId: id, ...part } },
          signal,
        }),
      ) as Promise<Page<Delivery>>,
  )
  const test = useAct<{ data: Delivery }>({
    done: "A test event is on its way",
    onDone: ({ data }) => void navigate({ to: "/webhooks/deliveries/$id", params: { id: data.id } }),
  })
  const change = useAct({})
  const recover = useAct<{ resent?: number }>({ done: "What failed in the last 24 hours is sent again" })
  // Asked for when it is wanted: a page makes three requests at most.
  const [isStats, setStats] = useState(false)
  const [secret, setSecret] = useState<string | undefined>()
  const roll = useAct<{ data: { secret: string } }>({ onDone: ({ data }) => setSecret(data.secret) })
  const webhook = query.data?.data
  if (!webhook) return <NotYet query={query} up={up} />
  const host = webhook.url.replace(/^https?:\/\//, "")
  return (
    <>
      <PageHead
        of={query}
        title={host}
        up={up}
        request={{ path }}
        head={
          <>
            <span className="figure cut">{host}</span>
            <Status state={webhook.disabledReason ? "failed" : webhook.active ? "on" : "off"} />
          </>
        }
        actions={
          may ? (
            <>
              <SendTest
                send={event => test.mutate({ method: "POST", path: `${path}/test`, body: event ? { event } : {} })}
                isBusy={test.isPending}
              />
              <More
                items={[
                  {
                    name: "Send again what failed today",
                    act: () =>
                      recover.mutate({
                        method: "POST",
                        path: `${path}/recover`,
                        body: { since: new Date(Date.now() - DAY_MS).toISOString() },
                      }),
                  },
                  {
                    name: "Make a new secret",
                    act: async () => {
                      const words = "The previous secret signs too for 24 hours, beside the new one."
                      if (await isSure({ title: "Make a new secret?", words, yes: "Create it" }))
                        roll.mutate({ method: "POST", path: `${path}/roll-secret` })
                    },
                  },
                  {
                    name: webhook.active ? "Switch off" : "Switch on",
                    act: () => change.mutate({ method: "PUT", path, body: { active: !webhook.active } }),
                  },
                  {
                    name: "Delete",
                    isBad: true,
                    act: async () => {
                      const words = "The endpoint gets no further events. Past deliveries stay in the log."
                      if (!(await isSure({ title: "Delete this endpoint?", words, yes: "Delete" }))) return
                      change.mutate({ method: "DELETE", path }, { onSuccess: () => void navigate({ to: "/webhooks" }) })
                    },
                  },
                ]}
              />
            </>
          ) : (
            <NoRight right="webhooks" />
          )
        }
      />
      {secret && (
        <div style={{ marginBottom: 16 }}>
          <Secret
            title="The secret"
            secret={secret}
            words="Your server checks each event's signature with this secret."
            close={() => setSecret(undefined)}
          />
        </div>
      )}
      {webhook.disabledReason && (
        <div className="note bad" role="status" style={{ marginBottom: 16 }}>
          <div>It was switched off: {webhook.disabledReason}. Repair the endpoint, then switch it on.</div>
          <Button size="xs" onClick={() => change.mutate({ method: "PUT", path, body: { active: true } })}>
            Switch on
          </Button>
        </div>
      )}
      <div className="two roomy">
        <section className="card" aria-label="Deliveries">
          <div className="pad head">
            <h2>Deliveries</h2>
          </div>
          <DataTable
            name="deliveries"
            columns={deliveryColumns(false)}
            list={list}
            to={delivery => `/webhooks/deliveries/${delivery.id}`}
            empty={
              <>
                <h2>Nothing has been sent yet</h2>
                <p>Send a test to see whether your server answers.</p>
              </>
            }
          />
        </section>
        <div className="stack">
          {isStats ? (
            <Stats id={id} />
          ) : (
            <section className="card pad row between">
              <h2>The last 24 hours</h2>
              <Button size="xs" onClick={() => setStats(true)}>
                Show its statistics
              </Button>
            </section>
          )}
          <section className="card pad" aria-label="Change it">
            <RequestForm
              key={webhook.updatedAt}
              first={{ url: webhook.url, events: webhook.events }}
              right="webhooks"
              submit="Save"
              done="Saved"
              request={values => ({ method: "PUT", path, body: { url: values.url.trim(), events: values.events } })}
              fields={form => (
                <>
                  <TextInput label="Address" {...form.getInputProps("url")} />
                  <EventsInput {...form.getInputProps("events")} />
                </>
              )}
            />
          </section>
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                webhook.description ? ["Note", webhook.description] : null,
                ["Added", <Time key="c" at={webhook.createdAt} />],
                ["Id", <Id key="i" value={webhook.id} />],
              ]}
            />
          </section>
        </div>
      </div>
    </>
  )
}

/** A ping, or the example of an event, which says of itself that it is a test. */
function SendTest({ send, isBusy }: { send: (event: string) => void; isBusy: boolean }) {
  const [event, setEvent] = useState("")
  return (
    <>
      <select
        className="chip pick"
        aria-label="What is sent as a test"
        value={event}
        onChange={({ currentTarget }) => setEvent(currentTarget.value)}
      >
        <option value="">ping</option>
        {allEvents.map(each => (
          <option key={each}>{each}</option>
        ))}
      </select>
      <Button onClick={() => send(event)} loading={isBusy}>
        Send a test
      </Button>
    </>
  )
}
