/** For a person who is a member nowhere yet: accept an invitation, or start a merchant. */
import { Button, TextInput } from "@mantine/core"
import { useState } from "react"
import { useMe } from "../api/me.ts"
import { signOut } from "../shell/sign-out.ts"
import { AcceptInvitation } from "../ui/accept-invitation.tsx"
import { useAct } from "../ui/use-act.ts"

export default function NoMerchant() {
  const { data: me } = useMe()
  const [name, setName] = useState("")
  const start = useAct({ done: "Your account is ready" })
  return (
    <main className="main" style={{ margin: "0 auto", maxWidth: 480 }}>
      <div className="stack">
        <h1>You don't belong to an account yet</h1>
        <p className="second">You are signed in as {me.person.email ?? me.person.subject}.</p>
        <section className="card pad stack">
          <h2>Start one</h2>
          <TextInput
            label="Its name, as payers see it"
            value={name}
            maxLength={200}
            onChange={event => setName(event.currentTarget.value)}
          />
          <div className="row">
            <Button
              variant="filled"
              loading={start.isPending}
              onClick={() =>
                start.mutate({ method: "POST", path: "/api/console/merchants", body: name ? { name } : {} })
              }
            >
              Start an account
            </Button>
          </div>
        </section>
        <AcceptInvitation />
        <div>
          <Button variant="subtle" className="plain" onClick={signOut}>
            Sign out
          </Button>
        </div>
      </div>
    </main>
  )
}
