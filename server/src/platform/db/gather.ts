/**
 * Combines reads of one kind that many requests make at the same time. A key that is requested while a read is in
 * progress waits for the next read. So each read starts after it was requested, and its result is as fresh as that of a
 * separate read.
 */
import { setImmediate as atOnce, setTimeout as sleep } from "node:timers/promises"
import type { Db } from "./open.ts"

/** The longest time that a hanging read delays the next one. */
const MAX_WAIT_MS = 10
/** How many keys one read takes. A statement takes 65,535 values, and a read may bind several for each key. */
const MAX_KEYS = 1_000

/**
 * Returns a function that reads one key by `load`; undefined if `load` has nothing for it. The read rejects if the
 * `load` with its key rejects. If no read is in progress, a read starts immediately.
 */
export function gather<K, R>(load: (keys: readonly K[]) => Promise<Map<K, R>>): (key: K) => Promise<R | undefined> {
  let last: Promise<unknown> | undefined
  let next: { keys: Set<K>; found: Promise<Map<K, R>> } | undefined
  const open = (): { keys: Set<K>; found: Promise<Map<K, R>> } => {
    const keys = new Set<K>()
    const isNext = () => next?.keys === keys
    const turn = last ? Promise.race([last, sleep(MAX_WAIT_MS)]) : atOnce()
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
    if (!next || next.keys.size >= MAX_KEYS) next = open()
    next.keys.add(key)
    return (await next.found).get(key)
  }
}

/**
 * Does the same for reads that depend on an object, such as a connection pool: each object has its own function, for as
 * long as the object lives.
 */
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

/** Does the same for rows. In a transaction, each read runs alone and immediately, because nobody else reads there. */
export function gatherRows<K, R>(
  load: (db: Db, keys: readonly K[]) => Promise<Map<K, R>>,
): (db: Db, key: K) => Promise<R | undefined> {
  const gathered = gatherBy(load)
  return async (db, key) => (db.isTransaction ? (await load(db, [key])).get(key) : await gathered(db, key))
}
