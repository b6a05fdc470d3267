/** API keys: what each may do, when it was used, and a new one, whose secret is shown once. */
import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core"
import { useState } from "react"
import { useRight } from "../api/me.ts"
import type { ApiKey } from "../api/types.ts"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { More } from "../ui/more.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Secret } from "../ui/secret.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"

const path = "/api/console/api-keys"
type Scope = ApiKey["scopes"][number]

const scopeWords: [Scope, string][] = [
  ["checkouts", "Take payments: checkouts, paywalls' calls"],
  ["read", "Read everything but settings, keys and secrets"],
  ["catalog", "Change what is sold: links, products, paywalls"],
  ["webhooks", "Change endpoints, send events again"],
  ["money", "Accept, return, refund, capture"],
  ["settings:read", "Read the settings"],
  ["console", "All of the above but settings: for your own back office"],
]
const scopeName = (scope: Scope): string => scope.replace(":", ": ")
const DAY_S = 86_400
const lasting = [
  { value: "", label: "Until it is revoked" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
  { value: "365", label: "1 year" },
]

const stateOfKey = ({ expiresAt, ending }: ApiKey): string =>
  expiresAt && Date.parse(expiresAt) < Date.now() ? "expired" : ending ? "ending" : "on"

export function Developers() {
  const may = useRight("keys")
  const [made, setMade] = useState<string | undefined>()
  const [isNew, setNew] = useState(false)
  const list = usePages<ApiKey>(path)
  const revoke = useAct({ done: "The key opens nothing any more" })
  const roll = useAct<{ key: string }>({ onDone: ({ key }) => setMade(key) })
  const columns: Column<ApiKey>[] = [
    {
      head: "Name",
      width: 16,
      cell: row => (
        <>
          <div className="strong cut">{row.name}</div>
          <div className="mono quiet">
            {row.prefix}…{row.last4}
          </div>
        </>
      ),
    },
    { head: "State", width: 6, cell: row => <Status state={stateOfKey(row)} why={row.ending?.reason ?? null} /> },
    { head: "May", width: 20, cell: row => <div className="second">{row.scopes.map(scopeName).join(", ")}</div> },
    {
      head: "Last used",
      width: 8,
      wide: true,
      cell: row => (row.lastUsedAt ? <Time at={row.lastUsedAt} /> : <span className="quiet">never</span>),
    },
    {
      head: "Ends",
      width: 8,
      wide: true,
      cell: row => (row.expiresAt ? <Time at={row.expiresAt} /> : <span className="quiet">–</span>),
    },
    {
      head: "",
      width: 4,
      right: true,
      cell: row =>
        may && (
          <More
            items={[
              {
                name: "Roll: a new secret, the old one for a day",
                act: () =>
                  roll.mutate({ method: "POST", path: `${path}/${row.id}/roll`, body: { graceSeconds: DAY_S } }),
              },
              {
                name: "Revoke",
                isBad: true,
                act: async () => {
                  const words = "Whatever uses it is refused from the next request on."
                  if (!(await isSure({ title: `Revoke “${row.name}”?`, words, yes: "Revoke" }))) return
                  revoke.mutate({ method: "DELETE", path: `${path}/${row.id}` })
                },
              },
            ]}
          />
        ),
    },
  ]
  return (
    <>
      <PageHead
        title="API keys"
        request={{ path }}
        actions={
          may ? (
            <Button variant="filled" onClick={() => setNew(true)} disabled={isNew}>
              Create key
            </Button>
          ) : (
            <NoRight right="keys" />
          )
        }
      />
      <div className="stack">
        {made && (
          <Secret
            title="The key"
            secret={made}
            words="Your server sends it as x-api-key."
            close={() => setMade(undefined)}
          />
        )}
        {isNew && (
          <NewKey
            close={() => setNew(false)}
            done={key => {
              setNew(false)
              setMade(key)
            }}
          />
        )}
        <section className="card" aria-label="List">
          <DataTable
            name="keys"
            columns={columns}
            list={list}
            empty={
              <>
                <h2>No keys yet</h2>
                <p>
                  With a key your server makes checkouts and reads payments. Each key has its own rights and its own
                  end.
                </p>
                <Button variant="filled" onClick={() => setNew(true)}>
                  Create key
                </Button>
              </>
            }
          />
        </section>
      </div>
    </>
  )
}

const first = { name: "", scopes: ["checkouts"] as string[], days: "", refundPerDay: "", returnPerDay: "" }

function NewKey({ done, close }: { done: (key: string) => void; close: () => void }) {
  return (
    <section className="card pad" aria-label="Create key" style={{ maxWidth: 640 }}>
      <RequestForm<typeof first, { key: string }>
        first={first}
        right="keys"
        submit="Create key"
        done="The key is ready"
        onDone={({ key }) => done(key)}
        onCancel={close}
        request={({ name, scopes, days, refundPerDay, returnPerDay }) => ({
          method: "POST",
          path,
          body: bodyOf({
            name: name.trim(),
            scopes,
            expiresAt: days === "" ? undefined : new Date(startOfDay() + Number(days) * DAY_S * 1_000).toISOString(),
            limits: scopes.includes("money")
              ? bodyOf({
                  refundPerDay: given(refundPerDay) && Number(refundPerDay),
                  returnPerDay: given(returnPerDay) && Number(returnPerDay),
                })
              : undefined,
          }),
        })}
        fields={form => (
          <>
            <TextInput label="Name" placeholder="The shop's server" autoFocus {...form.getInputProps("name")} />
            <Checkbox.Group label="It may" {...form.getInputProps("scopes")}>
              <div className="stack tight">
                {scopeWords.map(([scope, words]) => (
                  <Checkbox key={scope} value={scope} size="xs" label={words} />
                ))}
              </div>
            </Checkbox.Group>
            {form.values.scopes.includes("money") && (
              <div className="pair">
                <TextInput
                  label="Refunds a day, at most"
                  description="Whole tokens in 24 hours"
                  placeholder="without a limit"
                  inputMode="numeric"
                  {...form.getInputProps("refundPerDay")}
                />
                <TextInput
                  label="Returns a day, at most"
                  description="Whole tokens in 24 hours"
                  placeholder="without a limit"
                  inputMode="numeric"
                  {...form.getInputProps("returnPerDay")}
                />
              </div>
            )}
            <NativeSelect label="It lasts" data={lasting} {...form.getInputProps("days")} />
          </>
        )}
      />
    </section>
  )
}

/** So that one form is one request until midnight. */
const startOfDay = (): number => Math.floor(Date.now() / 86_400_000) * 86_400_000
