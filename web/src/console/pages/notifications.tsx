/** What this person is told by mail, at this merchant. */
import { Checkbox } from "@mantine/core"
import { read } from "../api/client.ts"
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
      <PageHead title="Settings" request={{ path }} of={query} />
      <SettingsTabs />
      {!data && <PartNotYet query={query} />}
      {data && (
        <section className="card pad stack" aria-label="Mail" style={{ maxWidth: 720 }}>
          <div>
            <h2>Mail to you</h2>
            <p className="quiet">
              {data.address === null
                ? "Your sign-in has no verified e-mail address, so nothing can be sent."
                : data.isSending
                  ? `To ${data.address}, at most 20 an hour; the rest arrives as one digest.`
                  : `This service sends no mail at the moment. Your choices apply to ${data.address} as soon as it does.`}
            </p>
          </div>
          {data.notices.map(({ notice, reports, byMail, isOptional }) => (
            <Checkbox
              key={notice}
              label={`${reports.replace(/\.$/, "")}${isOptional ? "" : " (always sent)"}`}
              checked={byMail}
              disabled={!isOptional || change.isPending}
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
