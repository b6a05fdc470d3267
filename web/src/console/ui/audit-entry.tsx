/** One change, with what each field was before and is now. */
import { Modal } from "@mantine/core"
import { actionText, changedIn } from "../api/audit.ts"
import type { AuditEntry } from "../api/types.ts"
import { Id } from "./copy.tsx"
import { Facts } from "./page.tsx"
import { RequestId } from "./problem.tsx"
import { Moment } from "./time.tsx"

const textOf = (value: unknown): string =>
  value === undefined || value === null ? "–" : typeof value === "string" ? value : JSON.stringify(value)

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
                  <th scope="row">{name}</th>
                  <td className="second">{textOf(fieldsOf(before)[name])}</td>
                  <td>{textOf(fieldsOf(after)[name])}</td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
        <Facts
          of={[
            ["Who", actor.id ?? actor.kind],
            ["Of", object.id ? <Id key="o" value={object.id} /> : object.type],
            ["When", <Moment key="w" at={at} />],
            address && ["From", address],
            userAgent && ["With", userAgent],
          ]}
        />
        {requestId && (
          <div>
            <RequestId id={requestId} />
          </div>
        )}
      </div>
    </Modal>
  )
}
