/**
 * Decides whether a network's rounds continue without its slow endpoints. Rounds continue as long as the other
 * endpoints settle what was asked. If the others contradict each other, perhaps because of lag, the slow one decides:
 * after ten seconds, a round waits for it.
 */
import type { Endpoint } from "./endpoints.ts"

/**
 * Momentary lag between two endpoints has ended after this time. Rounds wait for a slow endpoint at most this often.
 */
const LAG_MS = 10_000

interface State {
  /** When rounds began to leave something open, by `performance.now()`. */
  openSince: number | undefined
  /** The result of the newest round; undefined until that round has queried something. */
  isSettled: boolean | undefined
}

export interface SlowEndpoints {
  /** Whether this round waits for the slow endpoints. */
  isLong: boolean
  /** Notes whether a step has settled the question. */
  note(isSettled: boolean): void
}

/** A question that no round has repeated for this long is forgotten. */
const FORGOTTEN_MS = 60_000

/** For each list of endpoints: the state of the rounds that scan, and the state of all other rounds. */
const states = new WeakMap<readonly Endpoint[], [State, State]>()

/** Starts a round; call it once per round. */
export function openSlowEndpoints(endpoints: readonly Endpoint[], isScan: boolean): SlowEndpoints {
  const fresh = (): State => ({ openSince: undefined, isSettled: undefined })
  const known = states.get(endpoints) ?? [fresh(), fresh()]
  states.set(endpoints, known)
  const state = known[isScan ? 0 : 1]
  const openMs = performance.now() - (state.openSince ?? performance.now())
  if (state.isSettled || openMs > FORGOTTEN_MS) state.openSince = undefined
  state.isSettled = undefined
  const isLong = state.openSince !== undefined && performance.now() - state.openSince >= LAG_MS
  let hasNoted = false
  return {
    isLong,
    note: isSettled => {
      // Only one round waits. If that round settles nothing either, the next attempt comes after the same time.
      if (isLong && !hasNoted) state.openSince = undefined
      hasNoted = true
      state.isSettled = state.isSettled !== false && isSettled
      if (!isSettled) state.openSince ??= performance.now()
    },
  }
}
