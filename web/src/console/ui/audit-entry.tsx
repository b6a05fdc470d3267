/** One change, with what each field was before and is now. */
import { Modal } from "@mantine/core"
import { actionText, changedIn, fieldText, valueText } from "../api/audit.ts"
import type { AuditEntry } from "../api/types.ts"
import { Of, Who } from "./audit-words.tsx"
import { Facts } from "./page.tsx"
import { RequestId } from "./problem.tsx"
import { Moment } from "./time.tsx"

const fieldsOf = (value: unknown): Record<string, unknown> => (value ?? {}) as Record<string, unknown>

export default function AuditEntryDialog({ entry, close }: { entry: AuditEntry; close: () => void }) {
  const { action, actor, object, before, after, at, address, userAgent, requestId } = entry
  const changed = changedIn(entry)
  return (
    <Modal opened onClose={close} title={actionText(action)} size="lg">
      <div className="stack">
        {changed.length > 0 && (
          <table className="before-after">
            <thead>
              <tr>
                <th scope="col">Field</th>
                <th scope="col">Before</th>
                <th scope="col">After</th>
              </tr>
            </thead>
            <tbody>
              {changed.map(name => (
                <tr key={name}>
                  <th scope="row" title={name}>
                    {fieldText(name)}
                  </th>
                  <td className="second">{valueText(fieldsOf(before)[name])}</td>
                  <td>{valueText(fieldsOf(after)[name])}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <Facts
          of={[
            ["Who", <Who key="a" {...actor} />],
            ["Of", <Of key="o" {...object} />],
            ["When", <Moment key="w" at={at} />],
            address && ["From", address],
            userAgent && ["With", userAgent],
          ]}
        />
        {requestId && (
          <div className="whole-id">
            <RequestId id={requestId} />
          </div>
        )}
      </div>
    </Modal>
  )
}
