/** What this person is told by mail, at this merchant. */
import { Checkbox } from "@mantine/core"
import { read } from "../api/client.ts"
import { facts } from "../api/facts.ts"
import { useLive } from "../api/live.ts"
import type { Notifications } from "../api/types.ts"
import { PartNotYet } from "../ui/not-yet.tsx"
import { PageHead } from "../ui/page.tsx"
import { SettingsTabs } from "../ui/settings-tabs.tsx"
import { useAct } from "../ui/use-act.ts"

const path = "/api/console/notifications"

export function NotificationSettings() {
  const query = useLive(["notifications"], signal => read<Notifications>(path, {}, signal), { every: 60_000 })
  const change = useAct({ done: "Saved" })
  const data = query.data?.data
  return (
    <>
      <PageHead title="Mail" request={{ path }} of={query} />
      <SettingsTabs />
      {!data && <PartNotYet query={query} />}
      {data && (
        <section className="card pad stack" aria-label="Mail" style={{ maxWidth: 720 }}>
          <h2>Mail to you</h2>
          {data.address === null ? (
            <p className="note wait" role="status">
              <span>
                <span className="strong">No mail reaches you yet:</span> your sign-in has no verified e-mail address.
                {facts.signIn.provider && " Ask an owner to invite your e-mail address, then sign in with it."}
              </span>
            </p>
          ) : (
            <p className="quiet">
              {data.isSending
                ? `To ${data.address}, at most 20 an hour; the rest arrives as one digest.`
                : `This service sends no mail at the moment. Your choices apply to ${data.address} as soon as it does.`}
            </p>
          )}
          {data.notices.map(({ notice, reports, byMail, isOptional }) => (
            <Checkbox
              key={notice}
              label={`${reports.replace(/\.$/, "")}${isOptional ? "" : " (always sent)"}`}
              checked={byMail}
              disabled={!isOptional || change.isPending || data.address === null}
              onChange={event =>
                change.mutate({ method: "PUT", path, body: { [notice]: event.currentTarget.checked } })
              }
            />
          ))}
        </section>
      )}
    </>
  )
}
