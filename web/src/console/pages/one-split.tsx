/** One split, new or to be changed: who gets how much, to the base unit. */
import { Button, TextInput } from "@mantine/core"
import { Link, useNavigate } from "@tanstack/react-router"

import { useRight } from "../api/me.ts"
import type { Split } from "../api/types.ts"
import { Id } from "../ui/copy.tsx"
import { given, RequestForm } from "../ui/form.tsx"
import { NotYet } from "../ui/not-yet.tsx"
import { Facts, PageHead } from "../ui/page.tsx"
import { NoRight } from "../ui/problem.tsx"
import { emptySplit, recipientsOf, SplitEditor, type SplitValue } from "../ui/split-editor.tsx"
import { isSure } from "../ui/sure.ts"
import { Time } from "../ui/time.tsx"
import { useAct } from "../ui/use-act.ts"
import { useThing } from "../ui/use-thing.ts"

const up = { to: "/splits", name: "Splits" }
const base = "/api/console/splits"

interface Values extends Record<string, unknown> {
  name: string
  description: string
  recipients: SplitValue
}

interface FormGiven {
  first: Values
  method: "POST" | "PUT"
  path: string
  submit: string
  done: string
  onDone?: (split: Split) => void
  cancel?: string
}

function SplitForm({ first, method, path, cancel, ...rest }: FormGiven) {
  return (
    <RequestForm<Values, Split>
      first={first}
      right="payouts"
      {...rest}
      {...(cancel ? { cancel } : {})}
      request={({ name, description, recipients }) => {
        const read = recipientsOf(recipients)
        if (typeof read === "string") return read
        return {
          method,
          path,
          body: { name: name.trim(), description: given(description) ?? null, recipients: read },
        }
      }}
      fields={form => (
        <>
          <TextInput
            label="Name"
            description="Only your team sees it"
            autoFocus={method === "POST"}
            {...form.getInputProps("name")}
          />
          <SplitEditor
            value={form.values.recipients}
            onChange={recipients => form.setFieldValue("recipients", recipients as never)}
          />
          <TextInput label="Note" description="Optional" {...form.getInputProps("description")} />
        </>
      )}
    />
  )
}

export function NewSplit() {
  const navigate = useNavigate()
  return (
    <div style={{ maxWidth: 840 }}>
      <PageHead title="Create split" up={up} />
      <section className="card pad">
        <SplitForm
          first={{ name: "", description: "", recipients: emptySplit }}
          method="POST"
          path={base}
          submit="Create split"
          done="The split can be sold with"
          cancel={up.to}
          onDone={({ id }) => void navigate({ to: "/splits/$id", params: { id } })}
        />
      </section>
    </div>
  )
}

export function OneSplit() {
  const { id, path, query } = useThing<Split>("split", base)
  const may = useRight("payouts")
  const navigate = useNavigate()
  const remove = useAct({ done: "The split is deleted", onDone: () => void navigate({ to: up.to }) })
  const split = query.data
  if (!split) return <NotYet query={query} up={up} />
  const askRemove = async () => {
    const words = "Nothing new can be sold with this split. Existing payments keep their recipients."
    if (await isSure({ title: `Delete “${split.name}”?`, words, yes: "Delete" }))
      remove.mutate({ method: "DELETE", path })
  }
  const recipients = split.recipients.map(({ address, percent, label }) => ({
    address,
    percent: String(percent),
    label: label ?? "",
  }))
  return (
    <>
      <PageHead
        of={query}
        title={split.name}
        up={up}
        request={{ path }}
        actions={
          may ? (
            <>
              <Button onClick={askRemove}>Delete</Button>
              <Button variant="filled" component={Link} to="/links/new" search={{ split: id } as never}>
                Sell with it
              </Button>
            </>
          ) : (
            <NoRight right="payouts" />
          )
        }
      />
      <div className="two">
        <section className="card pad" aria-label="Change it">
          <SplitForm
            key={JSON.stringify(split)}
            first={{
              name: split.name,
              description: split.description ?? "",
              recipients: { recipients, rest: recipients.length - 1 },
            }}
            method="PUT"
            path={path}
            submit="Save"
            done="It applies to receiving addresses created from now on"
          />
        </section>
        <div className="stack">
          <section className="card pad stack tight">
            <h2>When it changes</h2>
            <p className="second">
              Existing checkouts keep their recipients, because each receiving address itself determines who shares its
              money. Paywalls get a new address immediately.
            </p>
          </section>
          <section className="card pad" aria-label="Facts">
            <Facts
              of={[
                ["Recipients", String(split.recipients.length)],
                ["Created", <Time key="c" at={split.createdAt} />],
                ["Id", <Id key="i" value={split.id} />],
              ]}
            />
          </section>
        </div>
      </div>
    </>
  )
}
