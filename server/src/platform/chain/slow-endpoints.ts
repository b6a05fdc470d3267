/**
 * Whether a network's rounds go on without its slow endpoints. They do while the others settle what was asked. Where
 * those contradict each other, which can also be a moment's lag, the slow one decides: after ten seconds it is waited for.
 */
import type { Endpoint } from "./endpoints.ts"

/** A moment's lag between two endpoints is over by then. At most so often is a slow endpoint waited for. */
const LAG_MS = 10_000

interface State {
  /** Since when rounds have left something open; by `performance.now()`. */
  openSince: number | undefined
  /** What the newest round has shown: undefined until it asked something. */
  isSettled: boolean | undefined
}

export interface SlowEndpoints {
  /** Whether the slow endpoints are waited for in this round. */
  isLong: boolean
  /** Notes whether a step has settled what was asked. */
  note(isSettled: boolean): void
}

/** What no round has asked about again for so long is over. */
const FORGOTTEN_MS = 60_000

/** For each list of endpoints: the state of the rounds that scan, and of all others. */
const states = new WeakMap<readonly Endpoint[], [State, State]>()

/** Begins a round; call it once for each. */
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
      // One round that asks something: what it does not settle either is tried again after as long.
      if (isLong && !hasNoted) state.openSince = undefined
      hasNoted = true
      state.isSettled = state.isSettled !== false && isSettled
      if (!isSettled) state.openSince ??= performance.now()
    },
  }
}
