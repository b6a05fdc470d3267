/**
 * What an address has access to, kept by this process while it lasts. Only access that is there: who has none, or has just paid, is read
 * again. The database notifies of each change in the order of the commits, so what another process took back is gone here after a
 * round trip; what this process took back is gone at once. While its notifications can't be relied on, everything is read.
 */
import type { Address, Hash } from "../chain/hex.ts"
import type { Context, TxContext } from "../context.ts"

export interface Access {
  expiresAt: Date
  txHash: Hash
}

/** What was read, and whether the database notifies of each change to it. */
export interface ReadAccess {
  access: Access | undefined
  isNotified: boolean
}

/** What an address has access to: at once where it is known, which most callers ask for. */
export type KnownAccess = (paywallId: string, address: Address) => Access | undefined | Promise<Access | undefined>

/** Some 43 MB (measured); then all are read again. */
const MOST_KNOWN = 100_000
/** Then it is read again, which also keeps the paywall's address watched. */
const LONGEST_MS = 600_000

/** Keeps what `read` answers, as long as it is true. */
export function openKnownAccess(
  ctx: Pick<Context, "wakes" | "now">,
  read: (paywallId: string, address: Address) => Promise<ReadAccess>,
): KnownAccess {
  const known = new Map<string, Access & { readAt: number }>()
  /** Reads under way; a change that is notified meanwhile takes its key out, as the read may have come before it. */
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
          if (known.size >= MOST_KNOWN) known.clear()
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

/** Takes back what this process knows of an address when the transaction is committed; others are notified by the database. */
export const accessChanged = (ctx: TxContext, paywallId: string, address: Address): void =>
  ctx.onCommit(() => ctx.wakes.changedHere("access", keyOf(paywallId, address)))
