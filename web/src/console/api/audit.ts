/** What an entry of the audit log says. */
import type { AuditEntry } from "./types.ts"

/** `payout_address.changed` as a person reads it. */
export const actionText = (action: string): string =>
  action.replace(/[._]/g, " ").replace(/^./, first => first.toUpperCase())

/** The fields that differ, by name. */
export const changedIn = ({ before, after }: Pick<AuditEntry, "before" | "after">): string[] => {
  const [old, now] = [before, after].map(each => (each ?? {}) as Record<string, unknown>) as [
    Record<string, unknown>,
    Record<string, unknown>,
  ]
  return [...new Set([...Object.keys(old), ...Object.keys(now)])].filter(
    name => JSON.stringify(old[name]) !== JSON.stringify(now[name]),
  )
}
