/** What an entry of the audit log says. */
import { networkTitle } from "./facts.ts"
import type { AuditEntry } from "./types.ts"

const capital = (text: string): string => text.replace(/^./, first => first.toUpperCase())

/** `payout_address.changed` as a person reads it. */
export const actionText = (action: string): string =>
  capital(
    action
      .replace(/[._]/g, " ")
      .replace(/^api key/, "API key")
      .replace(/^bundle/, "API"),
  )

const fieldNames: Record<string, string> = { chain: "network", last4: "last 4 characters", shownAt: "shown" }

/** `redirectUrl` as a person reads it. */
export const fieldText = (name: string): string =>
  fieldNames[name] ??
  name
    .replace(/[A-Z]/g, letter => ` ${letter.toLowerCase()}`)
    .replace(/\burl$/, "URL")
    .replace(/ id$/, "")

/** A network by its title, wherever the log names one; other values as they are. */
export const valueText = (value: unknown): string =>
  value === undefined || value === null ? "–" : typeof value === "string" ? networkTitle(value) : JSON.stringify(value)

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
