/** Where the link of an invitation leads a person who is a member somewhere already. */
import { useMe } from "../api/me.ts"
import { AcceptInvitation } from "../ui/accept-invitation.tsx"
import { PageHead } from "../ui/page.tsx"

export function Accept() {
  const { data: me } = useMe()
  return (
    <>
      <PageHead title="Join a team" />
      <p className="second lead">
        You are signed in as {me.person.email ?? me.person.subject}. Only the person named in an invitation can accept
        it.
      </p>
      <AcceptInvitation />
    </>
  )
}
