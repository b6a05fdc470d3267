/** Decides which groups are screened together, because one call asks a sanctions oracle about 500 addresses. Pure. */
import type { Address } from "../../platform/chain/hex.ts"
import type { Group } from "./sellable.ts"

/** How many senders are screened together: as many as one oracle call accepts. */
const SENDERS_AT_ONCE = 500

/** Splits the groups, in order, into parts of at most 500 senders. A larger group is a separate part. */
export function screenedTogether(due: readonly Group[]): Group[][] {
  const parts: Group[][] = []
  let room = 0
  for (const group of due) {
    const fits = group.senders.length <= room
    if (!fits) room = SENDERS_AT_ONCE
    room -= group.senders.length
    const last = parts.at(-1)
    if (fits && last) last.push(group)
    else parts.push([group])
  }
  return parts
}

/** Returns the senders of these groups, without duplicates. */
export const sendersOf = (groups: readonly Group[]): Address[] => [...new Set(groups.flatMap(({ senders }) => senders))]
