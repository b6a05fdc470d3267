/** API keys: what each may do, when it was used, and a new one, whose secret is shown once; and what all may send together. */
import { Button, NativeSelect } from "@mantine/core"
import { useState } from "react"
import { read } from "../api/client.ts"
import { useLive } from "../api/live.ts"
import { useRight } from "../api/me.ts"
import type { ApiKey, KeyLimits } from "../api/types.ts"
import { usePages } from "../ui/cursor-list.ts"
import { type Column, DataTable } from "../ui/data-table.tsx"
import { given, RequestForm } from "../ui/form.tsx"
import { inConsole, KeyFields, type KeyValues, keyBody, Limits } from "../ui/key-fields.tsx"
import { PartNotYet } from "../ui/not-yet.tsx"
import { PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { Secret } from "../ui/secret.tsx"
import { Status } from "../ui/status.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"

export const keysPath = "/api/console/api-keys"
const limitsPath = "/api/console/settings/key-limits"
/** What a key may do, in a word or two; the form says it in full. */
const scopeNames: Record<ApiKey["scopes"][number], string> = {
  checkouts: "Take payments",
  read: "Read",
  catalog: "Change what is sold",
  webhooks: "Webhooks",
  money: "Send money",
  "settings:read": "Read settings",
  console: "Send money, and all else but settings",
}
/** What a key may do; what `console` opens anyway is not said twice. */
const mayOf = (scopes: ApiKey["scopes"]): string =>
  scopes
    .filter(scope => !scopes.includes("console") || !["checkouts", ...inConsole].includes(scope))
    .map(scope => scopeNames[scope])
    .join(" · ")

const DAY_S = 86_400
const lasting = [
  { value: "", label: "Until it is revoked" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
  { value: "365", label: "1 year" },
]

/** The state of a key, as the words of states name it. */
export const stateOfKey = ({ expiresAt, ending }: Pick<ApiKey, "expiresAt" | "ending">): string =>
  expiresAt && Date.parse(expiresAt) < Date.now() ? "expired" : ending ? "ending" : "on"

const columns: Column<ApiKey>[] = [
  {
    head: "Name",
    width: 16,
    cell: row => (
      <>
        <div className="strong cut">{row.name}</div>
        <div className="mono quiet" style={{ whiteSpace: "nowrap" }}>
          {row.prefix}…{row.last4}
        </div>
      </>
    ),
  },
  { head: "State", width: 6, cell: row => <Status state={stateOfKey(row)} why={row.ending?.reason ?? null} /> },
  {
    head: "May",
    width: 20,
    cell: row => <div className="second cut">{mayOf(row.scopes)}</div>,
  },
  {
    head: "Last used",
    width: 8,
    wide: true,
    cell: row => (row.lastUsedAt ? <Time at={row.lastUsedAt} /> : <span className="quiet">never</span>),
  },
  {
    head: "Ends",
    width: 8,
    right: true,
    wide: true,
    cell: row => (row.expiresAt ? <Time at={row.expiresAt} /> : <span className="quiet">never</span>),
  },
]

export function Developers() {
  const may = useRight("keys")
  const [made, setMade] = useState<string | undefined>()
  const [isNew, setNew] = useState(false)
  const list = usePages<ApiKey>(keysPath)
  return (
    <>
      <PageHead
        title="API keys"
        request={{ path: keysPath }}
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
            to={({ id }) => `/developers/${id}`}
            empty={
              <>
                <h2>No keys yet</h2>
                <p>
                  With a key, your server creates checkouts and reads payments. Each key has its own rights and its own
                  expiry.
                </p>
                <Button variant="filled" onClick={() => setNew(true)}>
                  Create key
                </Button>
              </>
            }
          />
        </section>
        <div className="halves">
          <AllKeys />
          <CallbackSecret />
        </div>
      </div>
    </>
  )
}

const first: KeyValues & { days: string } = {
  name: "",
  scopes: ["checkouts"],
  allowedIps: "",
  refundPerDay: "",
  returnPerDay: "",
  days: "",
}

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
        request={values => ({
          method: "POST",
          path: keysPath,
          body: {
            ...keyBody(values),
            ...(values.days === ""
              ? {}
              : { expiresAt: new Date(startOfDay() + Number(values.days) * DAY_S * 1_000).toISOString() }),
          },
        })}
        fields={form => (
          <KeyFields values={form.values} propsOf={name => form.getInputProps(name)} isNew>
            <NativeSelect
              label="It lasts"
              description="A key can be rolled before it ends"
              data={lasting}
              {...form.getInputProps("days")}
            />
          </KeyFields>
        )}
      />
    </section>
  )
}

/** So that one form is one request until midnight. */
const startOfDay = (): number => Math.floor(Date.now() / 86_400_000) * 86_400_000

/** What all keys together may send back in a day: the most that whoever steals every key can take. */
function AllKeys() {
  const query = useLive(["key-limits"], signal => read<KeyLimits>(limitsPath, {}, signal), { every: 60_000 })
  const limits = query.data
  if (!limits) return <PartNotYet query={query} />
  return (
    <section className="card pad stack" aria-label="All keys together">
      <div>
        <h2>All keys together</h2>
        <p className="quiet">
          What servers may send back in a day, whatever each key allows. Actions by people do not count.
        </p>
      </div>
      <RequestForm
        key={`${limits.refundPerDay} ${limits.returnPerDay}`}
        first={{ refundPerDay: String(limits.refundPerDay ?? ""), returnPerDay: String(limits.returnPerDay ?? "") }}
        right="keys"
        submit="Save"
        done="The limits apply from the next refund on"
        request={values => ({
          method: "PUT",
          path: limitsPath,
          body: {
            refundPerDay: given(values.refundPerDay) === undefined ? null : Number(values.refundPerDay),
            returnPerDay: given(values.returnPerDay) === undefined ? null : Number(values.returnPerDay),
          },
        })}
        fields={form => <Limits propsOf={name => form.getInputProps(name)} />}
      />
    </section>
  )
}

const secretPath = "/api/console/settings/webhook-secret"

/** The secret that signs what goes to the `callbackUrl` of a checkout. */
function CallbackSecret() {
  const may = useRight("secrets")
  const [secret, setSecret] = useState<string | undefined>()
  const show = useAct<{ data: { webhookSecret: string } }>({ onDone: ({ data }) => setSecret(data.webhookSecret) })
  return (
    <section className="card pad stack" aria-label="Secret of callbacks">
      <div>
        <h2>Secret of callbacks</h2>
        <p className="quiet">
          This secret signs the events that go to a checkout's own callbackUrl. Each endpoint under Webhooks has its own
          secret.
        </p>
      </div>
      {secret && <pre className="code">{secret}</pre>}
      {may ? (
        <div className="row">
          <Button
            loading={show.isPending}
            onClick={() => show.mutate({ method: "POST", path: `${secretPath}/reveal` })}
          >
            Show it, once
          </Button>
          <Button
            loading={show.isPending}
            onClick={async () => {
              const words =
                "The previous secret signs too for 24 hours. Put the new one on your server within that time."
              if (await isSure({ title: "Make a new secret?", words, yes: "Create it" }))
                show.mutate({ method: "POST", path: secretPath })
            }}
          >
            Create a new one
          </Button>
        </div>
      ) : (
        <NoRight right="secrets" />
      )}
    </section>
  )
}
