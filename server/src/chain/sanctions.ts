/**
 * Who may not be served: the addresses of a list file, in any format that writes them out (OFAC's SDN lists in XML, CSV
 * or text, or one address a line). Every decision is stored with its source and time.
 */
import { readFileSync, statSync } from "node:fs"
import type { Context } from "../context.ts"
import type { Address } from "./hex.ts"

interface List {
  path: string
  changedAt: number
  addresses: Set<string>
}

let loaded: List | undefined

/**
 * The addresses of the list file, read again whenever it changes; throws when it can't be read, so that a missing list
 * never means that nobody is on it.
 */
export function sanctionedAddresses(path: string): Set<string> {
  const changedAt = statSync(path).mtimeMs
  if (loaded?.path !== path || loaded.changedAt !== changedAt) {
    const found = readFileSync(path, "utf8").match(/\b0x[0-9a-f]{40}\b/gi) ?? []
    loaded = { path, changedAt, addresses: new Set(found.map(address => address.toLowerCase())) }
  }
  return loaded.addresses
}

/**
 * Whether the address is on a sanctions list; stores the decision. `subject` says what it was decided for, such as
 * `pay:pw_…`.
 */
export async function isSanctioned(ctx: Context, address: Address, subject: string): Promise<boolean> {
  const path = ctx.settings.sanctionsFile
  if (path === undefined) return false
  const listed = sanctionedAddresses(path).has(address)
  await ctx.db
    .insertInto("screenings")
    .values({ address, listed, source: "file", subject, screened_at: ctx.now() })
    .execute()
  return listed
}
