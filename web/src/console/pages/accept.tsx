/** Where the link of an invitation leads a person who is a member somewhere already. */
import { personText, useMe } from "../api/me.ts"
import { AcceptInvitation } from "../ui/accept-invitation.tsx"
import { PageHead } from "../ui/page.tsx"

export function Accept() {
  const { data: me } = useMe()
  return (
    <>
      <PageHead title="Join a team" />
      <p className="second lead">
        You are signed in: <span title={me.person.subject}>{personText(me.person)}</span>. Only the person named in an
        invitation can accept it.
      </p>
      <AcceptInvitation />
    </>
  )
}
