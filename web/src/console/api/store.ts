/** A value that components follow. */
import { useSyncExternalStore } from "react"

export interface Store<T> {
  get(): T
  set(value: T): void
  use(): T
  /** Calls the function after each change; the returned one stops that. */
  follow(listener: () => void): () => void
}

export function newStore<T>(first: T): Store<T> {
  let value = first
  const listeners = new Set<() => void>()
  const get = () => value
  const subscribe = (listener: () => void) => {
    listeners.add(listener)
    return () => listeners.delete(listener)
  }
  return {
    get,
    set: next => {
      if (Object.is(next, value)) return
      value = next
      for (const listener of listeners) listener()
    },
    use: () => useSyncExternalStore(subscribe, get),
    follow: subscribe,
  }
}

/** A store that the browser keeps, for choices alone. */
export function keptStore<T>(name: string, first: T): Store<T> {
  const key = `sluice-${name}`
  const kept = (): T => {
    try {
      const text = localStorage.getItem(key)
      return text === null ? first : (JSON.parse(text) as T)
    } catch {
      return first
    }
  }
  const store = newStore(kept())
  return {
    ...store,
    set: value => {
      store.set(value)
      try {
        localStorage.setItem(key, JSON.stringify(value))
      } catch {
        // A browser may keep nothing; the choice then lasts as long as the page.
      }
    },
  }
}
