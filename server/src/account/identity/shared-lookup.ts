/**
 * Lookups for callers over their limit. All these lookups together cost the database one query per tenth of a second.
 */
// I/O: waits, and queries through the function that it is given.
import { setTimeout as sleep } from "node:timers/promises"

/** Finds one object by its name; undefined if it does not exist. */
export type Lookup<R> = (name: string) => Promise<R | undefined>

const GAP_MS = 100

/**
 * A lookup that waits for a tenth of a second, then asks for all names received so far in one query. A query that hangs
 * delays only its own callers.
 */
export function sharedLookup<R>(ask: (names: readonly string[]) => Promise<Map<string, R>>): Lookup<R> {
  let next: { names: Set<string>; found: Promise<Map<string, R>> } | undefined
  return async name => {
    if (!next) {
      const names = new Set<string>()
      const found = sleep(GAP_MS).then(async () => {
        next = undefined
        return await ask([...names])
      })
      next = { names, found }
    }
    next.names.add(name)
    return (await next.found).get(name)
  }
}
