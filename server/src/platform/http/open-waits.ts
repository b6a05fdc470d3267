/** The shared reads and slots of a process's waiting requests. */
import type { Context } from "../context.ts"
import type { Wakes } from "../jobs/wake.ts"
import { defaultBounds } from "./connections.ts"
import { openSharedReads, type SharedReads } from "./shared-reads.ts"
import { openSlots, type Slots } from "./waiter-slots.ts"

/**
 * Each kind has slots of its own, so that no kind takes another's slots. Together they leave a tenth of the connections
 * to requests that don't wait.
 */
interface Waits extends SharedReads {
  /** Live pages, and pages whose proxy buffers streams. */
  pages: Slots
  /** `wait=` of the API. */
  polls: Slots
  /** Agents and facilitators whose payments are in progress. */
  agents: Slots
  /** Streams of a merchant's changes, and requests that wait for a change. */
  streams: Slots
}

/** A process has one {@link Wakes}. */
const opened = new WeakMap<Wakes, Waits>()

/** The waits of this process; all of them end when `ctx.signal` aborts. */
export function waitsOf({ wakes, signal }: Pick<Context, "wakes" | "signal">): Waits {
  const known = opened.get(wakes)
  if (known) return known
  const { connections } = defaultBounds
  const part = (share: number) => openSlots(Math.floor(connections * share))
  const waits = {
    ...openSharedReads(wakes, signal),
    pages: part(0.25),
    polls: part(0.25),
    agents: part(0.3),
    streams: part(0.1),
  }
  opened.set(wakes, waits)
  return waits
}
