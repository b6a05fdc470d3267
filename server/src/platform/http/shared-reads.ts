/**
 * Reads for requests that wait: live pages, long-polls, agents. Everyone who waits for the same state shares each read
 * of it. The periodic reads of all states start together, so that their statements are combined (`db/gather.ts`).
 * Without sharing, a thousand live pages of one checkout cost 2,058 transactions a second.
 *
 * A wake-up that names a state, or names nothing, causes an immediate read of it. If a wake-up arrives during a read,
 * the state is read once more afterwards. Without a wake-up, a state is read after its pause, so a lost wake-up costs
 * only that pause. Reads of the same state never overlap, so nobody sees an older state after a newer one.
 */
import { AsyncLocalStorage } from "node:async_hooks"
import { setImmediate as nextTurn } from "node:timers/promises"
import type { Wakes } from "../jobs/wake.ts"
import type { Names } from "../jobs/wake-payload.ts"

/**
 * How often reads start without a wake-up. Each time, all due states share a few statements, however many states there
 * are.
 */
export const TICK_MS = 500
/**
 * How many states with a new waiter are read immediately; each second allows one more. The other states wait for the
 * tick.
 */
const MAX_EAGER = 10
const EAGER_AFTER_MS = 1_000
/** How many states are read at the same time: a wake-up that names nothing must not block the process for longer. */
const MAX_AT_ONCE = 400
/**
 * If wake-ups name nothing, all states are read at most this often. Such wake-ups are rare (`jobs/wake-payload.ts`).
 */
const ALL_PAUSE_MS = 2_000
/** How many waiters of a state are notified in one turn of the event loop, because each writes to its connection. */
const NOTIFIED_AT_ONCE = 100
/** How often `tend` is called, in milliseconds. */
const TEND_MS = 600_000
/** The pause after a read that failed. */
const AFTER_FAILURE_MS = 5_000
/** The share by which a pause may be shorter, so that the reads are spread over the ticks. */
const SPREAD = 0.2

/** A state that can be waited for. */
export interface Shared<T> {
  /** The kind, and everything that the state depends on: the same key gets the same state. */
  key: readonly unknown[]
  /** The names that wake-ups use for the state (`jobs/wake-payload.ts`). */
  names: readonly string[]
  read: () => Promise<T>
  /** Milliseconds until the state is read again without a wake-up. */
  pauseMs: (state: T) => number
  /** Called after the first read, and occasionally while anybody waits. */
  tend?: (state: T) => Promise<unknown>
  /** Whether a state is news even if it is unchanged. By default a state is news if its JSON differs. */
  isNews?: (state: T) => boolean
  /** Whether a read is so cheap that every new waiter gets one immediately. */
  isCheap?: boolean
}

/** A state that was read. */
export interface Seen<T> {
  /** The number of the read. */
  n: number
  state: T
  /** The state as JSON, created once for everyone; empty if `isNews` decides. */
  text: string
}

/** Someone who waits. Close it at the end. */
export interface Follower<T> {
  /** The state from a read that starts after this call. Rejects if that read fails. */
  fresh(): Promise<Seen<T>>
  /**
   * The next state after `seen` that is news. Undefined after `ms`, or once the follower has ended. Rejects if a read
   * fails. Nobody is notified while the state stays the same: a thousand promises for each read were most of a
   * process's allocations.
   */
  next(seen: Seen<T>, ms: number): Promise<Seen<T> | undefined>
  /** Ends all waits of {@link next}, present and future ones. */
  end(): void
  /** Whether the follower was ended, or the process is stopping. */
  isEnded(): boolean
  close(): void
}

export interface SharedReads {
  follow<T>(shared: Shared<T>): Follower<T>
}

interface WaitingReader {
  /** The waiter needs a read with a greater number. */
  after: number
  /** Whether any read ends the wait, instead of only a read that found news. */
  isFresh: boolean
  done: (seen: Seen<unknown> | undefined) => void
  fail: (error: unknown) => void
}

/** One state, and everyone who waits for it. */
interface Reader {
  key: string
  shared: Shared<unknown>
  followers: Set<() => void>
  waiting: Set<WaitingReader>
  /** The number of reads that have started. */
  begun: number
  isReading: boolean
  /** Whether another read was requested: immediately, or with the others at the next tick. */
  asked: "now" | "tick" | undefined
  seen: Seen<unknown> | undefined
  /** The number of the last read that found news. */
  newsAt: number
  /** By the monotonic clock. */
  dueAt: number
  tendAt: number
}

/** Opens the shared reads of a process; at `signal` all followers end. */
export function openSharedReads(wakes: Pick<Wakes, "onWake">, signal: AbortSignal): SharedReads {
  const readers = openReaders()
  // A shared read belongs to no request, not even to the one that asked first.
  const apart = AsyncLocalStorage.snapshot()
  const enqueue = openQueue(apart, readers.forget)
  const takeEager = openEager()
  let isTicking = false
  /** When all states were last read because a wake-up named nothing. */
  let allAt = Number.NEGATIVE_INFINITY

  const readNow = (reader: Reader): void => {
    reader.asked = "now"
    if (!reader.isReading) enqueue(reader)
  }
  const readSoon = (reader: Reader): void => {
    if (reader.asked === "now") return
    if (signal.aborted || reader.shared.isCheap || takeEager()) readNow(reader)
    else reader.asked = "tick"
  }
  const readAll = (): void => {
    const now = performance.now()
    const isTime = allAt + ALL_PAUSE_MS <= now
    if (isTime) allAt = now
    for (const reader of readers.all())
      if (isTime) readNow(reader)
      else reader.dueAt = Math.min(reader.dueAt, allAt + ALL_PAUSE_MS)
  }
  const tickLater = (): void => {
    isTicking = true
    apart(() => setTimeout(tick, TICK_MS).unref())
  }
  function tick(): void {
    isTicking = false
    if (readers.size() > 0) tickLater()
    const now = performance.now()
    for (const reader of readers.all())
      if (reader.asked === "tick" || (!reader.isReading && reader.dueAt <= now)) readNow(reader)
  }
  wakes.onWake("payments", (names: Names) => {
    if (!names) return readAll()
    for (const name of names) for (const reader of readers.named(name)) readNow(reader)
  })
  signal.addEventListener("abort", () => {
    for (const reader of readers.all()) for (const end of reader.followers) end()
  })

  return {
    follow: <T>(shared: Shared<T>): Follower<T> => {
      const reader = readers.of(shared as Shared<unknown>)
      if (!isTicking) tickLater()
      return followerOf(reader, signal, { readSoon, forget: readers.forget }) as Follower<T>
    },
  }
}

/** The readers, by the state's key and by the names that wake-ups use. */
function openReaders() {
  const byKey = new Map<string, Reader>()
  const byName = new Map<string, Set<Reader>>()
  function open(key: string, shared: Shared<unknown>): Reader {
    const dueAt = Number.POSITIVE_INFINITY
    const unread = { begun: 0, isReading: false, asked: undefined, seen: undefined, newsAt: 0, dueAt, tendAt: 0 }
    const reader: Reader = { key, shared, followers: new Set(), waiting: new Set(), ...unread }
    byKey.set(key, reader)
    for (const name of shared.names) byName.set(name, (byName.get(name) ?? new Set()).add(reader))
    return reader
  }
  return {
    size: () => byKey.size,
    all: () => byKey.values(),
    named: (name: string): Iterable<Reader> => byName.get(name) ?? [],
    /** The reader of a state; a new one if nobody waits for it. */
    of: (shared: Shared<unknown>): Reader => {
      const key = JSON.stringify(shared.key)
      return byKey.get(key) ?? open(key, shared)
    },
    forget: (reader: Reader): void => {
      byKey.delete(reader.key)
      for (const name of reader.shared.names) {
        const named = byName.get(name)
        named?.delete(reader)
        if (named?.size === 0) byName.delete(name)
      }
    },
  }
}

/** Returns a function that says whether a first read may start immediately; see {@link MAX_EAGER}. */
function openEager(): () => boolean {
  let left = MAX_EAGER
  let at = performance.now()
  return () => {
    const now = performance.now()
    left = Math.min(MAX_EAGER, left + (now - at) / EAGER_AFTER_MS)
    at = now
    if (left < 1) return false
    left--
    return true
  }
}

interface Care {
  readSoon: (reader: Reader) => void
  forget: (reader: Reader) => void
}

function followerOf(reader: Reader, signal: AbortSignal, { readSoon, forget }: Care): Follower<unknown> {
  let isEnded = false
  let stop = () => {}
  const end = () => {
    isEnded = true
    stop()
  }
  reader.followers.add(end)
  const wait = (after: number, ms?: number): Promise<Seen<unknown> | undefined> =>
    new Promise((resolve, reject) => {
      const leave = () => {
        clearTimeout(timer)
        reader.waiting.delete(waiting)
        stop = () => {}
      }
      const done: WaitingReader["done"] = seen => {
        leave()
        resolve(seen)
      }
      const fail = (error: unknown) => {
        leave()
        reject(error)
      }
      const waiting = { after, isFresh: ms === undefined, done, fail }
      const timer = ms === undefined ? undefined : setTimeout(done, ms, undefined)
      if (ms !== undefined) stop = () => done(undefined)
      reader.waiting.add(waiting)
    })
  return {
    fresh: async () => {
      // Taken before the read is requested, because the read may start immediately.
      const after = reader.begun
      readSoon(reader)
      return (await wait(after)) as Seen<unknown>
    },
    next: async ({ n }, ms) => {
      if (isEnded || signal.aborted) return undefined
      return reader.newsAt > n ? reader.seen : await wait(n, ms)
    },
    end,
    isEnded: () => isEnded || signal.aborted,
    close: () => {
      reader.followers.delete(end)
      if (reader.followers.size === 0 && !reader.isReading) forget(reader)
    },
  }
}

/** Returns a function that runs a reader's read, immediately or after others: at most {@link MAX_AT_ONCE} at a time. */
function openQueue(apart: ReturnType<typeof AsyncLocalStorage.snapshot>, forget: (reader: Reader) => void) {
  const waiting = new Set<Reader>()
  let underWay = 0
  const pump = (): void => {
    for (const reader of waiting) {
      if (underWay >= MAX_AT_ONCE) return
      waiting.delete(reader)
      // Nobody waits for this state any more.
      if (reader.followers.size === 0) continue
      underWay++
      void apart(readOnce, reader).then(() => {
        underWay--
        // A follower that comes and goes during a read must not start a second read in parallel.
        if (reader.followers.size === 0) forget(reader)
        else if (reader.asked === "now") waiting.add(reader)
        pump()
      })
    }
  }
  return (reader: Reader): void => {
    waiting.add(reader)
    pump()
  }
}

/** Reads a state, and notifies everyone who waits for it; never rejects. */
async function readOnce(reader: Reader): Promise<void> {
  const { shared } = reader
  reader.isReading = true
  reader.asked = undefined
  const n = ++reader.begun
  try {
    const state = await shared.read()
    if (performance.now() >= reader.tendAt) {
      await shared.tend?.(state)
      reader.tendAt = performance.now() + TEND_MS
    }
    note(reader, n, state)
    // Pauses vary randomly, so that states that were read together after one wake-up do not stay together forever.
    reader.dueAt = performance.now() + shared.pauseMs(state) * (1 - SPREAD * Math.random())
  } catch (error) {
    reader.dueAt = performance.now() + AFTER_FAILURE_MS
    for (const each of reader.waiting) if (each.after < n) each.fail(error)
  } finally {
    reader.isReading = false
  }
  if (reader.seen?.n === n) void notify(reader, reader.seen)
}

async function notify(reader: Reader, seen: Seen<unknown>): Promise<void> {
  let notified = 0
  for (const each of [...reader.waiting]) {
    if (each.after >= (each.isFresh ? seen.n : reader.newsAt) || !reader.waiting.has(each)) continue
    each.done(seen)
    if (++notified % NOTIFIED_AT_ONCE === 0) await nextTurn()
  }
}

/**
 * Stores the state that was read. If the state is not news, the previous one stays, so that all waiters share one
 * object.
 */
function note(reader: Reader, n: number, state: unknown): void {
  const { isNews } = reader.shared
  const text = isNews ? "" : JSON.stringify(state)
  const before = reader.seen
  if (before && !(isNews ? isNews(state) : text !== before.text)) {
    reader.seen = { ...before, n }
    return
  }
  reader.seen = { n, state, text }
  reader.newsAt = n
}
