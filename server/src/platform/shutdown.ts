/**
 * Stops the process. The first signal starts the drain: the process still serves, and `/readyz` asks the load balancer
 * to send no new requests. After the drain, or at a second signal, the process stops.
 */

export interface Shutdown {
  /** Aborted at the first signal. */
  draining: AbortSignal
  /** Aborted when the process must stop. */
  stopping: AbortSignal
  /** Call it once requests are served: a signal then drains for this many milliseconds before the process stops. */
  drainFor(ms: number): void
  /** Stops immediately. */
  stop(reason: string): void
}

/** A shutdown that nobody has requested yet. Without a call of `drainFor` there is no drain. */
export function openShutdown(): Shutdown & { onSignal(name: string): void } {
  const draining = new AbortController()
  const stopping = new AbortController()
  let drainMs = 0
  const stop = (reason: string) => {
    draining.abort(reason)
    stopping.abort(reason)
  }
  return {
    draining: draining.signal,
    stopping: stopping.signal,
    drainFor: ms => {
      drainMs = ms
    },
    stop,
    onSignal: name => {
      if (draining.signal.aborted || drainMs === 0) return stop(name)
      draining.abort(name)
      setTimeout(() => stop(name), drainMs)
    },
  }
}
