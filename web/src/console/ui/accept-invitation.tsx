/** Accepts an invitation to a team: its token comes with the link, or is pasted. */
import { Button, TextInput } from "@mantine/core"
import { useNavigate } from "@tanstack/react-router"
import { useState } from "react"
import { chosenMerchant } from "../api/client.ts"
import type { Membership } from "../api/types.ts"
import { useAct } from "./use-act.ts"

/** The token of the link that was followed. It leaves the address bar at once, so that neither the history nor a screenshot has it. */
function tokenOfLink(): string {
  const token = location.hash.slice(1)
  if (token !== "") history.replaceState(history.state, "", location.pathname)
  return token
}

export function AcceptInvitation() {
  const [token, setToken] = useState(tokenOfLink)
  const navigate = useNavigate()
  const accept = useAct<Membership>({
    done: "You are a member now",
    onDone: ({ merchantId }) => {
      chosenMerchant.set(merchantId)
      void navigate({ to: "/" })
    },
  })
  return (
    <section className="card pad stack" style={{ maxWidth: 560 }}>
      <h2>Accept an invitation</h2>
      <TextInput
        label="The invitation"
        description="Paste the link that you were sent, or the code at its end"
        value={token}
        onChange={event => setToken(event.currentTarget.value.trim().replace(/^.*[/=#]/, ""))}
      />
      <div className="row">
        <Button
          loading={accept.isPending}
          disabled={token === ""}
          onClick={() => accept.mutate({ method: "POST", path: "/api/console/team/accept", body: { token } })}
        >
          Accept
        </Button>
      </div>
    </section>
  )
}
