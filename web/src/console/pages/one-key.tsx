/** One API key: what it may do, to be changed; a new secret beside the old one; its end. */
import { Button, NativeSelect, TextInput } from "@mantine/core"
import { Link, useNavigate, useParams } from "@tanstack/react-router"
import { useState } from "react"
import { read } from "../api/client.ts"
import { dayAt, startTime } from "../api/days.ts"
import { useLive } from "../api/live.ts"
import { useRight } from "../api/me.ts"
import type { ApiKey, Page } from "../api/types.ts"
import { zoneNow } from "../api/zone.ts"
import { Id } from "../ui/copy.tsx"
import { RequestForm } from "../ui/form.tsx"
import { KeyFields, keyBody } from "../ui/key-fields.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Secret } from "../ui/secret.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"
import { keysPath, stateOfKey } from "./developers.tsx"

const up = { to: "/developers", name: "API keys" }
const endWords: Record<string, string> = {
  maker_left: "Its creator has left the team",
  maker_role: "Its creator may no longer grant these rights",
}
const overlaps = [
  { value: "0", label: "At once" },
  { value: "3600", label: "After 1 hour" },
  { value: "86400", label: "After 1 day" },
  { value: "604800", label: "After 7 days" },
]

/** The API lists keys and answers no single one. */
const useKey = (id: string) =>
  useLive(
    ["key", id],
    async signal => {
      const { data } = await read<Page<ApiKey>>(keysPath, { limit: 100 }, signal)
      return data.find(each => each.id === id) ?? null
    },
    { every: 15_000 },
  )

export function OneKey() {
  const { id } = useParams({ strict: false }) as { id: string }
  const path = `${keysPath}/${id}`
  const query = useKey(id)
  const may = useRight("keys")
  const navigate = useNavigate()
  const [made, setMade] = useState<string | undefined>()
  const revoke = useAct({ done: "The key no longer works", onDone: () => void navigate({ to: up.to }) })
  const adopt = useAct({ done: "The key keeps working. Roll it too, because its creator may know the secret." })
  const key = query.data
  if (key === null)
    return (
      <div className="state">
        <h1>This key is revoked, or never existed</h1>
        <Button onClick={() => void navigate({ to: up.to })}>All keys</Button>
      </div>
    )
  if (!key) return <NotYet query={query} up={up} />
  const askRevoke = async () => {
    const words = "Everything that uses the key is refused from the next request on."
    if (await isSure({ title: `Revoke “${key.name}”?`, words, yes: "Revoke" }))
      revoke.mutate({ method: "DELETE", path })
  }
  return (
    <>
      <PageHead
        of={query}
        title={key.name}
        up={up}
        head={
          <>
            <span className="figure">{key.name}</span>
            <Status state={stateOfKey(key)} why={key.ending?.reason ?? null} />
          </>
        }
        actions={
          <>
            <Button component={Link} to="/requests" search={{ key: id } as never}>
              Its requests
            </Button>
            {may ? (
              <Button c="var(--bad)" onClick={askRevoke}>
                Revoke
              </Button>
            ) : (
              <NoRight right="keys" />
            )}
          </>
        }
      />
      {key.ending && (
        <div className="note wait" role="status" style={{ marginBottom: 16 }}>
          <div>
            {endWords[key.ending.reason]}, so it ends <Time at={key.ending.until} />. It keeps working if you adopt it.
          </div>
          <Button
            size="xs"
            loading={adopt.isPending}
            onClick={() => adopt.mutate({ method: "POST", path: `${path}/adopt`, body: {} })}
          >
            Adopt it
          </Button>
        </div>
      )}
      {made && (
        <div style={{ marginBottom: 16 }}>
          <Secret
            title="The key"
            secret={made}
            words="Put the secret on your server; the old one works until then."
            close={() => setMade(undefined)}
          />
        </div>
      )}
      <div className="two">
        <section className="card pad" aria-label="Change it">
          <Change apiKey={key} path={path} />
        </section>
        <div className="stack">
          <section className="card pad stack" aria-label="Roll it">
            <div>
              <h2>Roll it</h2>
              <p className="quiet">A new secret for the same key, which keeps its limits and its history.</p>
            </div>
            <RequestForm<{ grace: string }, { key: string }>
              first={{ grace: "86400" }}
              right="keys"
              submit="Make a new secret"
              done="The new secret works now"
              onDone={({ key }) => setMade(key)}
              request={({ grace }) => ({ method: "POST", path: `${path}/roll`, body: { graceSeconds: Number(grace) } })}
              fields={form => (
                <NativeSelect label="The old one stops" data={overlaps} {...form.getInputProps("grace")} />
              )}
            />
          </section>
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                [
                  "Begins with",
                  <span key="p" className="mono">
                    {key.prefix}…
                  </span>,
                ],
                [
                  "Ends in",
                  <span key="l" className="mono">
                    …{key.last4}
                  </span>,
                ],
                ["Last used", key.lastUsedAt ? <Time key="u" at={key.lastUsedAt} /> : "never"],
                key.previousExpiresAt && ["Old secret stops", <Time key="o" at={key.previousExpiresAt} />],
                key.byDevice && ["Made by", "a sign-in of the command line"],
                ["Created", <Time key="c" at={key.createdAt} />],
                ["Id", <Id key="i" value={key.id} />],
              ]}
            />
          </section>
        </div>
      </div>
    </>
  )
}

const textOf = (limit: number | null): string => (limit === null ? "" : String(limit))

const dayOf = ({ expiresAt }: ApiKey): string => (expiresAt ? dayAt(Date.parse(expiresAt), zoneNow()) : "")

function Change({ apiKey: key, path }: { apiKey: ApiKey; path: string }) {
  return (
    <RequestForm
      first={{
        name: key.name,
        scopes: [...key.scopes] as string[],
        allowedIps: (key.allowedIps ?? []).join(", "),
        refundPerDay: textOf(key.limits.refundPerDay),
        returnPerDay: textOf(key.limits.returnPerDay),
        expiresAt: dayOf(key),
      }}
      right="keys"
      submit="Save"
      done="The change applies from the next request on"
      request={values => ({
        method: "PUT",
        path,
        body: {
          ...keyBody(values),
          ...(values.expiresAt === dayOf(key) ? {} : { expiresAt: startTime(values.expiresAt, zoneNow()) ?? null }),
        },
      })}
      fields={form => (
        <KeyFields values={form.values} propsOf={name => form.getInputProps(name)}>
          <TextInput
            type="date"
            label="It ends"
            description="As this day begins. If this is empty, the key lasts until it is revoked"
            {...form.getInputProps("expiresAt")}
          />
        </KeyFields>
      )}
    />
  )
}
