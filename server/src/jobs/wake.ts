/**
 * What the processes on one database notify each other of. Wake-ups: a transaction that inserts due rows notifies the loops and the
 * long-polls of every process; they carry no data, and a lost one costs at most the sleep of the loop or long-poll. Changes: a trigger
 * notifies of a row that processes keep a copy of.
 */
import { EventEmitter } from "node:events"
import { gather } from "../db/gather.ts"
import { notify, type OpenDatabase } from "../db/open.ts"

/**
 * verify: something to look up on chain. payments: a payment's state changed. payouts: money is to move. deliveries: events to
 * send. housekeeping: the clock was moved.
 */
const channels = ["verify", "payments", "payouts", "deliveries", "housekeeping"] as const
export type WakeChannel = (typeof channels)[number]

/** access: what an address has access to, as `PAYWALL ADDRESS`, or `PAYWALL` for all of its addresses. */
type ChangeTopic = "access"

/** Who keeps copies of rows. */
export interface ChangeListener {
  changed(what: string): void
  /** Called when changes may have been missed. */
  missed(): void
}

/**
 * Where wake-ups come by the thousand: NOTIFY takes a lock that all commits pass (17,000 a second became 5,700, measured). A
 * process that has just notified rests for four times as long as that takes now, so that a busy database gets fewer. What counts is the
 * median of the last eight: after one slow commit of 6 ms, deliveries would wait for 24 (most of their p99, measured); and by the quickest
 * of the eight a busy database got so many that a ninth to a quarter fewer messages were delivered.
 */
const REST_SHARE = 4
const LAST_TIMES = 8
const LEAST_REST_MS = 2
/** For news that nobody is in a hurry for. */
const SPARING_REST_MS = 100

export interface Wakes {
  /** Wakes all processes; call it after the commit, so that the row is there when they look. */
  wake(channel: WakeChannel): Promise<void>
  /** Wakes this process at once, and the others without waiting for it; however many call it, a fifth of the time goes to notifying. */
  wakeSoon(channel: WakeChannel): void
  /** Wakes all processes, this one too, at most ten times a second: for news that nobody is in a hurry for. */
  wakeSparingly(channel: WakeChannel): void
  /** Wakes who waits in this process, and nobody else. */
  wakeHere(channel: WakeChannel): void
  subscribe(channel: WakeChannel): Subscription
  /** Calls the listener at each change that a process commits; one of this process at once, by {@link changedHere}. */
  onChange(topic: ChangeTopic, listener: ChangeListener): void
  /** Calls this process's listeners with its own change; call it when that is committed. */
  changedHere(topic: ChangeTopic, what: string): void
  /** Whether every change of two seconds ago was delivered. */
  areChangesHeard(): boolean
}

interface Subscription {
  /** Resolves at a wake-up (at once if one came since the last call), after `ms`, or at the signal; never rejects. */
  next(ms: number, signal?: AbortSignal): Promise<void>
  close(): void
}

/** The wake-ups of one process over its database's notifications. */
export async function openWakes(database: Pick<OpenDatabase, "db" | "listen" | "isListening">): Promise<Wakes> {
  const emitter = new EventEmitter().setMaxListeners(0)
  const listeners: (ChangeListener & { topic: ChangeTopic })[] = []
  const changedHere: Wakes["changedHere"] = (topic, what) => {
    for (const each of listeners) if (each.topic === topic) each.changed(what)
  }
  await database.listen({
    notified: payload => {
      const [, topic, what] = CHANGE.exec(payload) ?? []
      if (channels.some(channel => channel === payload)) emitter.emit(payload)
      else if (topic !== undefined) changedHere(topic as ChangeTopic, what ?? "")
    },
    missed: () => {
      for (const each of listeners) each.missed()
    },
  })
  // One notification serves all who asked for it before it was sent.
  const notified = gather<WakeChannel, true>(async channels => {
    await Promise.all(channels.map(channel => notify(database.db, channel)))
    return new Map()
  })
  const wake = async (channel: WakeChannel) => void (await notified(channel))
  const resting = new Map<WakeChannel, boolean>()
  const lastMs: number[] = []
  const notifySoon = async (channel: WakeChannel, leastRestMs: number): Promise<void> => {
    if (resting.has(channel)) return void resting.set(channel, true)
    resting.set(channel, false)
    const startedAt = performance.now()
    // A lost one costs at most the sleep of whoever waits.
    await wake(channel).catch(() => {})
    if (lastMs.push(performance.now() - startedAt) > LAST_TIMES) lastMs.shift()
    const restMs = Math.max(leastRestMs, REST_SHARE * medianOf(lastMs))
    setTimeout(() => {
      const again = resting.get(channel)
      resting.delete(channel)
      if (again) void notifySoon(channel, leastRestMs)
    }, restMs).unref()
  }
  return {
    wake,
    wakeSoon: channel => {
      // It costs no NOTIFY, and a loop makes one round of all wake-ups that come while it runs.
      emitter.emit(channel)
      void notifySoon(channel, LEAST_REST_MS)
    },
    wakeSparingly: channel => void notifySoon(channel, SPARING_REST_MS),
    wakeHere: channel => void emitter.emit(channel),
    subscribe: channel => subscribe(emitter, channel),
    onChange: (topic, listener) => void listeners.push({ topic, ...listener }),
    changedHere,
    areChangesHeard: database.isListening,
  }
}

const medianOf = (values: readonly number[]): number =>
  values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) / 2)] ?? 0

/** How a trigger notifies of a change: its topic, a space, and what changed. */
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
