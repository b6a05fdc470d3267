/** Listeners: endpoints without a URL, whose deliveries a program pulls, such as the command line on a developer's machine. */
import { Button } from "@mantine/core"
import { useRight } from "../api/me.ts"
import { settingsPath, useSettings } from "../api/settings.ts"
import type { Listener } from "../api/types.ts"
import { copyText } from "../ui/copy.tsx"
import { usePages } from "../ui/cursor-list.ts"
import { DataTable } from "../ui/data-table.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"

const path = "/api/console/listeners"
const command = "sluice listeners create --events checkout.session.completed"

export function Listeners() {
  const may = useRight("webhooks")
  const list = usePages<Listener>(path)
  const end = useAct({ done: "The listener ended" })
  const askEnd = async (id: string) => {
    const words =
      "The program that pulls from the listener stops. Events that are still due to the listener are skipped."
    if (await isSure({ title: "End this listener?", words, yes: "End it" }))
      end.mutate({ method: "DELETE", path: `${path}/${id}` })
  }
  return (
    <>
      <PageHead
        title="Listeners"
        up={{ to: "/webhooks", name: "Webhooks" }}
        request={{ path }}
        actions={<Button onClick={() => copyText(command, "Command")}>Copy the command</Button>}
      />
      <p className="second lead">
        Endpoints without a URL, for a machine that nobody can connect to, such as a developer's: a program pulls their
        events. A listener ends automatically if nobody pulls from it for ten minutes.
      </p>
      <section className="card" aria-label="List">
        <DataTable
          name="listeners"
          list={list}
          empty={
            <>
              <h2>No listener now</h2>
              <p>A program on a developer's machine starts one:</p>
              <pre className="code">{command}</pre>
            </>
          }
          columns={[
            {
              head: "What for",
              width: 18,
              cell: row => <span className="strong">{row.description ?? "A listener"}</span>,
            },
            {
              head: "Events",
              width: 8,
              wide: true,
              cell: row => (
                <span className="second">
                  {row.events.length} kinds{row.callbacks ? ", and callbacks" : ""}
                </span>
              ),
            },
            { head: "Last pulled", width: 8, cell: row => <Time at={row.pulledAt} /> },
            {
              head: "",
              width: 4,
              right: true,
              cell: row =>
                may && (
                  <Button size="xs" onClick={() => askEnd(row.id)}>
                    End it
                  </Button>
                ),
            },
          ]}
        />
      </section>
      <LiveListeners />
    </>
  )
}

/** Whether real events may be pulled to a developer's machine at all. */
function LiveListeners() {
  const may = useRight("settings")
  const { data } = useSettings()
  const change = useAct({ done: "Saved" })
  if (!data) return null
  const { liveListeners } = data
  const toggle = async () => {
    const words = liveListeners
      ? "Listeners that pull real events now end immediately."
      : "Members who may manage webhooks can then pull real events, with the data of real payers, to their own machine."
    const title = liveListeners ? "Allow no live events?" : "Allow live events?"
    if (await isSure({ title, words, yes: liveListeners ? "Allow none" : "Allow live events" }))
      change.mutate({ method: "PUT", path: settingsPath, body: { liveListeners: !liveListeners } })
  }
  return (
    <section className="card pad row between" aria-label="Live events" style={{ marginTop: 16 }}>
      <div>
        <h2>Live events: {liveListeners ? "on" : "off"}</h2>
        <p className="quiet">
          {liveListeners
            ? "Developers' machines can receive real payment events."
            : "Developers' machines can't receive real payment events."}
        </p>
      </div>
      <span className="row">
        {!may && <NoRight right="settings" />}
        <Button size="xs" disabled={!may} loading={change.isPending} onClick={toggle}>
          {liveListeners ? "Allow none" : "Allow live events"}
        </Button>
      </span>
    </section>
  )
}
