/**
 * Reads of one kind that many requests make at the same time, as one: what is asked for while a read is under way waits for the
 * next. Each answer was read after it was asked for, so nothing is older than it would be alone.
 */
import { setImmediate as atOnce, setTimeout as sleep } from "node:timers/promises"

/** A read that hangs delays the next by no more. */
const MOST_WAIT_MS = 10
/** Keys of one read: a statement takes 65,535 values, and a read may bind several for each key. */
const MOST_KEYS = 1_000

/**
 * A function that answers what `load` has for one key, undefined where it has nothing; rejects where the `load` that its key is in
 * does. Alone it loads at once.
 */
export function gather<K, R>(load: (keys: readonly K[]) => Promise<Map<K, R>>): (key: K) => Promise<R | undefined> {
  let last: Promise<unknown> | undefined
  let next: { keys: Set<K>; found: Promise<Map<K, R>> } | undefined
  const open = (): { keys: Set<K>; found: Promise<Map<K, R>> } => {
    const keys = new Set<K>()
    const isNext = () => next?.keys === keys
    const turn = last ? Promise.race([last, sleep(MOST_WAIT_MS)]) : atOnce()
    const found = turn.then(() => {
      if (isNext()) next = undefined
      const loaded = load([...keys])
      const over = loaded.then(
        () => {},
        () => {},
      )
      last = over
      void over.then(() => {
        if (last === over) last = undefined
      })
      return loaded
    })
    return { keys, found }
  }
  return async key => {
    if (!next || next.keys.size >= MOST_KEYS) next = open()
    next.keys.add(key)
    return (await next.found).get(key)
  }
}

/** The same where what is read depends on one thing, such as a connection pool: each has its own, for as long as it lives. */
export function gatherBy<O extends object, K, R>(
  load: (owner: O, keys: readonly K[]) => Promise<Map<K, R>>,
): (owner: O, key: K) => Promise<R | undefined> {
  const byOwner = new WeakMap<O, (key: K) => Promise<R | undefined>>()
  return (owner, key) => {
    const known = byOwner.get(owner) ?? gather<K, R>(keys => load(owner, keys))
    byOwner.set(owner, known)
    return known(key)
  }
}
