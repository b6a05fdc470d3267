/**
 * This process's cache of existing access, which keeps an entry for as long as the access lasts. Addresses without
 * access are read from the database each time. The database sends a notification of each change, in commit order. So
 * access that another process revokes leaves this cache after a round trip, and access that this process revokes leaves
 * it immediately. While notifications are unreliable, everything is read from the database.
 */
import type { Address, Hash } from "../../platform/chain/hex.ts"
import type { Context, TxContext } from "../../platform/context.ts"

export interface Access {
  expiresAt: Date
  txHash: Hash
}

/** The result of a read, and whether the database sends a notification of every change of that result. */
export interface ReadAccess {
  access: Access | undefined
  isNotified: boolean
}

/** Returns an address's access. For most calls it is cached, and so returned immediately. */
export type KnownAccess = (paywallId: string, address: Address) => Access | undefined | Promise<Access | undefined>

/** The most entries, which take about 43 MB (measured). A full cache is emptied. */
const MAX_KNOWN = 100_000
/** The time after which an entry is read again. That read also keeps the paywall's address watched. */
const LONGEST_MS = 600_000

/** Opens a cache of what `read` returns, which keeps each answer for as long as it is true. */
export function openKnownAccess(
  ctx: Pick<Context, "wakes" | "now">,
  read: (paywallId: string, address: Address) => Promise<ReadAccess>,
): KnownAccess {
  const known = new Map<string, Access & { readAt: number }>()
  /**
   * The reads in progress. A notification that arrives meanwhile removes the key, because the read may have seen the
   * old state.
   */
  const reading = new Map<string, Promise<Access | undefined>>()
  const forget = (key: string) => {
    known.delete(key)
    reading.delete(key)
  }
  ctx.wakes.onChange("access", {
    changed: what => {
      if (what.includes(" ")) return forget(what)
      for (const key of [...known.keys(), ...reading.keys()]) if (key.startsWith(`${what} `)) forget(key)
    },
    missed: () => {
      known.clear()
      reading.clear()
    },
  })

  function readAgain(key: string, paywallId: string, address: Address): Promise<Access | undefined> {
    const started = read(paywallId, address).then(
      ({ access, isNotified }) => {
        const isCurrent = reading.get(key) === started
        if (isCurrent) reading.delete(key)
        if (isCurrent && isNotified && access) {
          if (known.size >= MAX_KNOWN) known.clear()
          known.set(key, { ...access, readAt: performance.now() })
        }
        return access
      },
      error => {
        if (reading.get(key) === started) reading.delete(key)
        throw error
      },
    )
    reading.set(key, started)
    return started
  }

  return (paywallId, address) => {
    const key = keyOf(paywallId, address)
    if (!ctx.wakes.areChangesHeard()) return read(paywallId, address).then(({ access }) => access)
    const held = known.get(key)
    if (held && held.expiresAt > ctx.now() && performance.now() - held.readAt < LONGEST_MS) return held
    known.delete(key)
    return readAgain(key, paywallId, address)
  }
}

const keyOf = (paywallId: string, address: Address): string => `${paywallId} ${address}`

/** Removes an address's access from this process's cache on commit. The database notifies other processes. */
export const accessChanged = (ctx: TxContext, paywallId: string, address: Address): void =>
  ctx.onCommit(() => ctx.wakes.changedHere("access", keyOf(paywallId, address)))
