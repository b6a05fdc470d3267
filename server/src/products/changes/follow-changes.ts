/**
 * The one reader in each process: it reads the changes of all watched merchants and distributes them. The reader
 * reads once a second and after each wake-up (`jobs/wake.ts`). So the triggers need no NOTIFY, which would delay
 * every commit. While nobody watches, nothing is read.
 */
import type { Context } from "../../platform/context.ts"
import type { Wakes } from "../../platform/jobs/wake.ts"
import { laterOf, type Position } from "./position.ts"
import { type Change, changesAfter } from "./queries.ts"
import { type ShownChange, shownChanges } from "./show-changes.ts"

/**
 * The interval between reads without a wake-up, in milliseconds. All idle streams together cost one transaction a
 * second.
 */
const PAUSE_MS = 1_000
/** The shortest pause between two reads, so that a busy service reads at most twenty times a second. */
const GAP_MS = 50
/** The time until the second read after a wake-up. An ending transaction may delay the change that woke the reader. */
const AGAIN_MS = 200
/** How many changes one read returns at most. */
const LIMIT = 500

/** A formatted change of a merchant. */
export interface Message extends Position, ShownChange {}

/** A watcher of a merchant's changes. */
interface Follower {
  merchantId: string
  /** Receives the merchant's changes from one read, usually none. All changes up to `end` have then been delivered. */
  take(messages: readonly Message[], end: Position): void
  /** Reports that the transaction history was replaced, so no earlier position is valid. */
  reset(): void
}

interface Following {
  /**
   * Resolves after the first read that includes the follower, who misses nothing from then on. Never resolves if the
   * process stops.
   */
  begun: Promise<void>
  close(): void
}

export interface Feed {
  follow(follower: Follower): Following
  /** The position up to which changes were distributed. */
  position(): Position | undefined
}

/** One feed for each {@link Wakes}, of which a process has one. */
const opened = new WeakMap<Wakes, Feed>()

/** Returns this process's reader, which stops when `ctx.signal` aborts. */
export function feedOf(ctx: Context): Feed {
  const feed = opened.get(ctx.wakes) ?? openFeed(ctx)
  opened.set(ctx.wakes, feed)
  return feed
}

interface Entry {
  follower: Follower
  begin: () => void
}

function openFeed(ctx: Context): Feed {
  const entries = new Set<Entry>()
  let position: Position | undefined
  let epoch: string | undefined
  let isRunning = false
  /** How many reads the last wake-up still causes: one immediately, and one a moment later. */
  let hurry = 0
  const { pause, resume } = openPause(ctx.signal)

  const wake = () => {
    hurry = 2
    resume()
  }
  for (const channel of ["payments", "payouts", "deliveries"] as const) ctx.wakes.onWake(channel, wake)

  async function readOnce(): Promise<boolean> {
    // The read does not cover followers who join while it runs.
    const counted = [...entries]
    const merchants = [...new Set(counted.map(({ follower }) => follower.merchantId))]
    const page = await changesAfter(ctx, merchants, position, LIMIT)
    const isNewEpoch = epoch !== undefined && epoch !== page.now.epoch
    epoch = page.now.epoch
    if (isNewEpoch) {
      position = undefined
      for (const { follower } of [...entries]) follower.reset()
      return true
    }
    const messages = await messagesOf(ctx, page.changes)
    const end = position ? laterOf(position, page.end) : page.end
    position = end
    for (const { follower, begin } of counted) {
      begin()
      follower.take(messages.get(follower.merchantId) ?? [], end)
    }
    return page.isFull
  }

  async function run(): Promise<void> {
    while (entries.size > 0 && !ctx.signal.aborted) {
      const isMore = await readOnce().catch(error => {
        ctx.log.warn({ err: error }, "changes could not be read; reading is retried")
        return false
      })
      await pause(isMore ? 0 : GAP_MS)
      if (!isMore && hurry === 0) await pause(PAUSE_MS - GAP_MS, () => hurry > 0)
      else if (hurry === 1) await pause(AGAIN_MS)
      if (hurry > 0) hurry--
    }
    isRunning = false
    position = undefined
  }

  return {
    position: () => position,
    follow: follower => {
      const { promise: begun, resolve: begin } = Promise.withResolvers<void>()
      const entry = { follower, begin }
      entries.add(entry)
      if (!isRunning) {
        isRunning = true
        void run()
      } else wake()
      return { begun, close: () => void entries.delete(entry) }
    },
  }
}

/**
 * Returns `pause`, which waits until the signal aborts or the time is over, and `resume`, which ends a pause that has
 * a condition.
 */
function openPause(signal: AbortSignal) {
  let end = () => {}
  const resume = () => end()
  signal.addEventListener("abort", resume)
  /** Waits for `ms`. With `isOver`, ends at `resume`, and doesn't wait if the condition already holds. */
  const pause = (ms: number, isOver?: () => boolean): Promise<void> =>
    new Promise(resolve => {
      if (signal.aborted || isOver?.()) return resolve()
      const timer = setTimeout(done, ms)
      function done() {
        clearTimeout(timer)
        end = () => {}
        resolve()
      }
      if (isOver) end = done
    })
  return { pause, resume }
}

/** Messages by merchant, each list in the order of the changes. */
export async function messagesOf(ctx: Context, changes: readonly Change[]): Promise<Map<string, Message[]>> {
  const shown = changes.length === 0 ? [] : await shownChanges(ctx, changes)
  const messages = new Map<string, Message[]>()
  for (const [i, { xid, n, merchantId }] of changes.entries()) {
    const change = shown[i]
    if (!change) continue
    const list = messages.get(merchantId) ?? []
    list.push({ xid, n, ...change })
    messages.set(merchantId, list)
  }
  return messages
}
