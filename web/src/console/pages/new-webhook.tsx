/** A new endpoint. Its secret is shown once, here. */
import { Button, TextInput } from "@mantine/core"
import { Link } from "@tanstack/react-router"
import { useState } from "react"
import { copyText } from "../ui/copy.tsx"
import { EventsInput } from "../ui/events-input.tsx"
import { bodyOf, given, RequestForm } from "../ui/form.tsx"
import { PageHead } from "../ui/page.tsx"

const up = { to: "/webhooks", name: "Webhooks" }
const first = { url: "", events: ["*"], description: "" }

interface Made {
  data: { id: string; url: string; secret: string }
}

export function NewWebhook() {
  const [made, setMade] = useState<Made["data"] | undefined>()
  if (made)
    return (
      <div style={{ maxWidth: 640 }}>
        <PageHead title="The endpoint's secret" up={up} />
        <section className="card pad stack">
          <p>
            Your server checks each event's signature with this secret. <b>It is shown only now.</b>
          </p>
          <pre className="code">{made.secret}</pre>
          <div className="row">
            <Button variant="filled" onClick={() => copyText(made.secret, "Secret")}>
              Copy the secret
            </Button>
            <Button component={Link} to={`/webhooks/${made.id}`}>
              Go on to the endpoint
            </Button>
          </div>
        </section>
      </div>
    )
  return (
    <div style={{ maxWidth: 640 }}>
      <PageHead title="Add endpoint" up={up} />
      <section className="card pad">
        <RequestForm<typeof first, Made>
          first={first}
          right="webhooks"
          submit="Add endpoint"
          done="The endpoint gets events from now on"
          cancel="/webhooks"
          onDone={({ data }) => setMade(data)}
          request={values => ({
            method: "POST",
            path: "/api/console/webhooks",
            body: bodyOf({ url: values.url.trim(), events: values.events, description: given(values.description) }),
          })}
          fields={form => (
            <>
              <TextInput
                label="Address"
                description="Your server's, as payers' browsers never call it"
                placeholder="https://shop.example/hooks"
                autoFocus
                {...form.getInputProps("url")}
              />
              <EventsInput {...form.getInputProps("events")} />
              <TextInput label="Note" description="Optional, for you" {...form.getInputProps("description")} />
            </>
          )}
        />
      </section>
    </div>
  )
}
