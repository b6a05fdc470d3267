/**
 * Notifications between processes on one database. Wake-ups: a transaction that inserts due rows wakes the loops and
 * waiting requests of every process. A wake-up may name what changed, so that nobody reads anything else. A lost
 * wake-up costs at most the sleep of a waiter. Changes: a trigger reports a change to a row of which processes keep a
 * copy.
 */
import { EventEmitter } from "node:events"
import { gather } from "../db/gather.ts"
import { notify, type OpenDatabase } from "../db/open.ts"
import { joinNames, type Names, payloadsOf, readPayload, type WakeChannel } from "./wake-payload.ts"

/**
 * The topics of changes. access: the access of one address to a paywall changed (`PAYWALL ADDRESS`), or that of all
 * addresses (`PAYWALL`). credential: an API key or a session ended or changed (its id), or a membership did (`MERCHANT
 * PERSON`).
 */
type ChangeTopic = "access" | "credential"

/** Code that keeps copies of rows. */
export interface ChangeListener {
  changed(what: string): void
  /** Called when changes may have been missed. */
  missed(): void
}

/**
 * Limits thousands of wake-ups. NOTIFY takes a lock that every commit waits for (17,000 commits a second became 5,700,
 * measured). So a process that has just notified rests for four times as long as a NOTIFY takes, and a busy database
 * gets fewer notifications. The median time of the last eight counts. With only the last time, deliveries would wait
 * for 24 ms after one slow commit of 6 ms (most of their p99, measured). With the quickest of the eight, a busy
 * database got too many notifications, and delivered a ninth to a quarter fewer messages.
 */
const REST_SHARE = 4
const LAST_TIMES = 8
const MIN_REST_MS = 2
/** How long a process rests after news that is not urgent. */
const SPARING_REST_MS = 100

export interface Wakes {
  /**
   * Wakes all processes. Call it after the commit, so that they find the row. `names` says what changed; without it,
   * anything may have changed.
   */
  wake(channel: WakeChannel, names?: Names): Promise<void>
  /**
   * Wakes this process immediately, and notifies the others without waiting. The process spends at most a fifth of the
   * time on notifications, however often it is called.
   */
  wakeSoon(channel: WakeChannel): void
  /** Wakes all processes, including this one, at most ten times a second: for news that is not urgent. */
  wakeSparingly(channel: WakeChannel, names?: Names): void
  /** Wakes only the waiters of this process. */
  wakeHere(channel: WakeChannel): void
  subscribe(channel: WakeChannel): Subscription
  /** Calls the listener at each wake-up, with what changed. */
  onWake(channel: WakeChannel, listener: (names: Names) => void): void
  /**
   * Calls the listener at each change that a process commits. The listener gets this process's changes immediately,
   * through {@link changedHere}.
   */
  onChange(topic: ChangeTopic, listener: ChangeListener): void
  /** Calls this process's listeners with its own change. Call it after the commit. */
  changedHere(topic: ChangeTopic, what: string): void
  /** Whether every change up to two seconds ago has been delivered. */
  areChangesHeard(): boolean
}

interface Subscription {
  /** Resolves at a wake-up (now, if one came since the last call), after `ms`, or at the signal; never rejects. */
  next(ms: number, signal?: AbortSignal): Promise<void>
  close(): void
}

/** Opens the wake-ups of one process over its database's notifications. */
export async function openWakes(database: Pick<OpenDatabase, "db" | "listen" | "isListening">): Promise<Wakes> {
  const emitter = new EventEmitter().setMaxListeners(0)
  const listeners: (ChangeListener & { topic: ChangeTopic })[] = []
  const changedHere: Wakes["changedHere"] = (topic, what) => {
    for (const each of listeners) if (each.topic === topic) each.changed(what)
  }
  await database.listen({
    notified: payload => {
      const wakeUp = readPayload(payload)
      const [, topic, what] = CHANGE.exec(payload) ?? []
      if (wakeUp) emitter.emit(wakeUp.channel, wakeUp.names)
      else if (topic !== undefined) changedHere(topic as ChangeTopic, what ?? "")
    },
    missed: () => {
      for (const each of listeners) each.missed()
    },
  })
  /** The names for the next notification of each channel. */
  const asked = new Map<WakeChannel, Names>()
  // One notification serves all callers that requested it before it was sent.
  const notified = gather<WakeChannel, true>(async channels => {
    const payloads = channels.flatMap(channel => payloadsOf(channel, asked.get(channel)))
    for (const channel of channels) asked.delete(channel)
    await Promise.all(payloads.map(payload => notify(database.db, payload)))
    return new Map()
  })
  const wake = async (channel: WakeChannel, names?: Names): Promise<void> => {
    asked.set(channel, asked.has(channel) ? joinNames(asked.get(channel), names) : names)
    await notified(channel)
  }
  /** The channels that are resting, each with the notification to send afterwards. */
  const resting = new Map<WakeChannel, { names: Names } | undefined>()
  const lastMs: number[] = []
  const notifySoon = async (channel: WakeChannel, minRestMs: number, names?: Names): Promise<void> => {
    if (resting.has(channel)) {
      const later = resting.get(channel)
      return void resting.set(channel, { names: later ? joinNames(later.names, names) : names })
    }
    resting.set(channel, undefined)
    const startedAt = performance.now()
    // A lost notification costs at most the sleep of a waiter.
    await wake(channel, names).catch(() => {})
    if (lastMs.push(performance.now() - startedAt) > LAST_TIMES) lastMs.shift()
    const restMs = Math.max(minRestMs, REST_SHARE * medianOf(lastMs))
    setTimeout(() => {
      const again = resting.get(channel)
      resting.delete(channel)
      if (again) void notifySoon(channel, minRestMs, again.names)
    }, restMs).unref()
  }
  return {
    wake,
    wakeSoon: channel => {
      // This costs no NOTIFY, and a loop runs one round for all wake-ups that arrive while it runs.
      emitter.emit(channel)
      void notifySoon(channel, MIN_REST_MS)
    },
    wakeSparingly: (channel, names) => void notifySoon(channel, SPARING_REST_MS, names),
    wakeHere: channel => void emitter.emit(channel),
    subscribe: channel => subscribe(emitter, channel),
    onWake: (channel, listener) => void emitter.on(channel, listener),
    onChange: (topic, listener) => void listeners.push({ topic, ...listener }),
    changedHere,
    areChangesHeard: database.isListening,
  }
}

const medianOf = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? 0

/** The form of a trigger's notification: the topic, a space, and what changed. */
const CHANGE = /^(\w+) (.+)$/

function subscribe(emitter: EventEmitter, channel: WakeChannel): Subscription {
  let woken = false
  let resume = () => {}
  const onWake = () => {
    woken = true
    resume()
  }
  emitter.on(channel, onWake)
  return {
    next: async (ms, signal) => {
      if (!woken && !signal?.aborted)
        await new Promise<void>(resolve => {
          const timer = setTimeout(resolve, ms)
          const done = () => {
            clearTimeout(timer)
            signal?.removeEventListener("abort", done)
            resolve()
          }
          resume = done
          signal?.addEventListener("abort", done, { once: true })
        })
      woken = false
    },
    close: () => void emitter.off(channel, onWake),
  }
}
