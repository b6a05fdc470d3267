import { setImmediate as turn } from "node:timers/promises"
import fc from "fast-check"
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest"
import type { Names } from "../jobs/wake-payload.ts"
import { type Follower, openSharedReads, type Seen, type Shared, TICK_MS } from "./shared-reads.ts"

const PAUSE_MS = 5_000
const FOREVER_MS = 1_000_000

beforeEach(() => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] })
})
afterEach(() => {
  vi.useRealTimers()
})

/** Lets everything happen that waits for no timer. */
const settle = async () => {
  for (let i = 0; i < 5; i++) await turn()
}
const pass = async (ms: number) => {
  await vi.advanceTimersByTimeAsync(ms)
  await settle()
}

/** Shared reads with wake-ups of our own. */
function open() {
  let wake = (_: Names) => {}
  const stop = new AbortController()
  const wakes = {
    onWake: (_: string, listener: (names: Names) => void) => {
      wake = listener
    },
  }
  const reads = openSharedReads(wakes, stop.signal)
  return { reads, wake: (names: Names) => wake(names), stop }
}

/** States by id, and how often each was read. */
function states() {
  const versions = new Map<string, number>()
  const reads = new Map<string, number>()
  const tended: string[] = []
  const shared = (id: string, more: Partial<Shared<number>> = {}): Shared<number> => ({
    key: ["state", id],
    names: [id],
    read: async () => {
      reads.set(id, (reads.get(id) ?? 0) + 1)
      return versions.get(id) ?? 0
    },
    tend: async () => void tended.push(id),
    pauseMs: () => PAUSE_MS,
    ...more,
  })
  const change = (id: string) => versions.set(id, (versions.get(id) ?? 0) + 1)
  return { shared, change, readsOf: (id: string) => reads.get(id) ?? 0, tended }
}

const freshAll = async <T>(followers: readonly Follower<T>[]) => {
  const all = Promise.all(followers.map(each => each.fresh()))
  await settle()
  await pass(2 * TICK_MS)
  return await all
}

describe("those who wait for one state", () => {
  it("share one read for each change, and nobody reads what was not named", async () => {
    const { reads, wake } = open()
    const { shared, change, readsOf } = states()
    const waiting = Array.from({ length: 1_000 }, () => reads.follow(shared("a")))
    const others = Array.from({ length: 10 }, () => reads.follow(shared("b")))
    let seen = (await freshAll([...waiting, ...others])).slice(0, waiting.length)
    // One that began at once, and one for those who came during it.
    expect([readsOf("a"), readsOf("b")]).toEqual([2, 2])
    for (let i = 1; i <= 3; i++) {
      const notified = Promise.all(waiting.map((each, k) => each.next(seen[k] as Seen<number>, FOREVER_MS)))
      change("a")
      wake(["a", "nobody"])
      seen = (await notified) as Seen<number>[]
      expect(new Set(seen.map(({ state }) => state))).toEqual(new Set([i]))
      expect([readsOf("a"), readsOf("b")]).toEqual([2 + i, 2])
    }
    // The loops alone.
    wake([])
    await settle()
    expect([readsOf("a"), readsOf("b")]).toEqual([5, 2])
  })

  it("are not notified while it is the same, and hold one copy of it", async () => {
    const { reads, wake } = open()
    const follower = reads.follow<object>({ key: ["a"], names: ["a"], read: async () => ({}), pauseMs: () => PAUSE_MS })
    const [seen] = (await freshAll([follower])) as [Seen<object>]
    const next = follower.next(seen, 1_000)
    wake(["a"])
    await pass(1_000)
    expect(await next).toBeUndefined()
    const again = follower.fresh()
    await pass(TICK_MS)
    expect((await again).state).toBe(seen.state)
  })

  it("have it read once more for any number of wake-ups during a read", async () => {
    const { reads, wake } = open()
    const gates: PromiseWithResolvers<number>[] = []
    const read = () => {
      const gate = Promise.withResolvers<number>()
      gates.push(gate)
      return gate.promise
    }
    const follower = reads.follow({ key: ["a"], names: ["a"], read, pauseMs: () => PAUSE_MS })
    const first = follower.fresh()
    for (let i = 0; i < 10; i++) wake(i % 2 ? ["a"] : undefined)
    await settle()
    expect(gates.length).toBe(1)
    gates[0]?.resolve(1)
    const next = follower.next(await first, FOREVER_MS)
    await settle()
    expect(gates.length).toBe(2)
    gates[1]?.resolve(2)
    expect((await next)?.state).toBe(2)
    await settle()
    expect(gates.length).toBe(2)
  })

  it("have it read after its pause without a wake-up, and kept up while they wait; nobody reads what nobody waits for", async () => {
    const { reads } = open()
    const { shared, change, readsOf, tended } = states()
    const follower = reads.follow(shared("a"))
    const [seen] = (await freshAll([follower])) as [Seen<number>]
    const next = follower.next(seen, FOREVER_MS)
    change("a")
    await pass(PAUSE_MS + TICK_MS)
    expect((await next)?.state).toBe(1)
    expect(tended).toEqual(["a"])
    await pass(600_000 + PAUSE_MS)
    expect(tended).toEqual(["a", "a"])
    follower.close()
    const before = readsOf("a")
    await pass(60_000)
    expect(readsOf("a")).toBe(before)
    expect(vi.getTimerCount()).toBe(0)
  })

  it("who come one after the other share the reads of a tick, once ten have had their own", async () => {
    const { reads } = open()
    const { shared, readsOf } = states()
    const ids = Array.from({ length: 30 }, (_, i) => `s${i}`)
    const first = ids.map(id => reads.follow(shared(id)).fresh())
    await settle()
    expect(ids.filter(id => readsOf(id) > 0)).toEqual(ids.slice(0, 10))
    await pass(TICK_MS)
    await Promise.all(first)
    expect(ids.map(readsOf)).toEqual(ids.map(() => 1))
    // A cheap one waits for nothing.
    void reads.follow(shared("cheap", { isCheap: true })).fresh()
    await settle()
    expect(readsOf("cheap")).toBe(1)
  })

  it("have all read at most every two seconds by wake-ups that name nothing, and miss none of them", async () => {
    const { reads, wake } = open()
    const { shared, change, readsOf } = states()
    const ids = ["a", "b", "c"]
    const followers = ids.map(id => reads.follow(shared(id)))
    const first = await freshAll(followers)
    const notified = followers.map((each, i) => each.next(first[i] as Seen<number>, FOREVER_MS))
    for (let i = 0; i < 100; i++) wake(undefined)
    await settle()
    expect(ids.map(readsOf)).toEqual([2, 2, 2])
    ids.forEach(change)
    wake(undefined)
    await pass(2_000 + TICK_MS)
    expect((await Promise.all(notified)).map(seen => seen?.state)).toEqual([1, 1, 1])
  })

  it("are each notified of a read that failed, and the next read is another", async () => {
    const { reads, wake } = open()
    let isBroken = false
    let state = 1
    const read = async () => {
      if (isBroken) throw new Error("broken")
      return state
    }
    const shared = { key: ["a"], names: ["a"], read, pauseMs: () => PAUSE_MS }
    const followers = Array.from({ length: 3 }, () => reads.follow(shared))
    const first = await freshAll(followers)
    isBroken = true
    const notified = followers.map((each, i) =>
      each.next(first[i] as Seen<number>, FOREVER_MS).catch(error => error.message),
    )
    wake(["a"])
    expect(await Promise.all(notified)).toEqual(["broken", "broken", "broken"])
    isBroken = false
    state = 2
    const next = followers[0]?.next(first[0] as Seen<number>, FOREVER_MS)
    await pass(PAUSE_MS + TICK_MS)
    expect((await next)?.state).toBe(2)
  })

  it("are notified at once of what came before they asked", async () => {
    const { reads, wake } = open()
    const { shared, change } = states()
    const follower = reads.follow(shared("a"))
    const [seen] = (await freshAll([follower])) as [Seen<number>]
    change("a")
    wake(["a"])
    await settle()
    expect((await follower.next(seen, FOREVER_MS))?.state).toBe(1)
  })

  it("end with the process, and still get the last state", async () => {
    const { reads, stop } = open()
    const { shared, change } = states()
    const followers = Array.from({ length: 500 }, (_, i) => reads.follow(shared(`s${i % 50}`)))
    const first = await freshAll(followers)
    const notified = followers.map((each, i) => each.next(first[i] as Seen<number>, FOREVER_MS))
    change("s7")
    stop.abort()
    expect((await Promise.all(notified)).every(seen => seen === undefined)).toBe(true)
    expect(followers.every(each => each.isEnded())).toBe(true)
    const last = Promise.all(followers.map(each => each.fresh()))
    await settle()
    expect((await last).map(seen => seen.state)).toEqual(followers.map((_, i) => (i % 50 === 7 ? 1 : 0)))
  })

  it("by keys: what differs in any part is another state", async () => {
    const { reads } = open()
    const at = (...key: unknown[]) => ({
      key,
      names: [],
      read: async () => JSON.stringify(key),
      pauseMs: () => PAUSE_MS,
    })
    const keys = [
      ["a", "b c"],
      ["a b", "c"],
      ["a", "b", "c"],
      ["a", "b c", undefined],
    ]
    const found = await freshAll(keys.map(key => reads.follow(at(...key))))
    expect(new Set(found.map(seen => seen.state)).size).toBe(4)
  })
})

/** A page that follows a state until it leaves, and reconnects after an error. */
function openPage(follow: () => Follower<number>, now: () => number) {
  /** What it was shown, in order. */
  const shown: number[] = []
  let follower: Follower<number> | undefined
  let isGone = false
  const run = async (): Promise<void> => {
    while (!isGone) {
      const mine = follow()
      follower = mine
      const since = now()
      try {
        let seen = await mine.fresh()
        expect(seen.state).toBeGreaterThanOrEqual(since)
        while (!mine.isEnded()) {
          expect(seen.state).toBeGreaterThanOrEqual(shown.at(-1) ?? 0)
          shown.push(seen.state)
          seen = (await mine.next(seen, FOREVER_MS)) ?? seen
        }
      } catch (error) {
        if ((error as Error).message !== "broken") throw error
      } finally {
        mine.close()
      }
    }
  }
  const leave = () => {
    isGone = true
    follower?.end()
  }
  return { shown, leave, running: run() }
}

describe("no change is missed, whatever comes in between", () => {
  const step = fc.constantFrom(
    "change, named",
    "change, unnamed",
    "change, lost",
    "another changes",
    "look",
    "answer",
    "fail",
    "join",
    "leave",
    "tick",
  )
  it("of wake-ups, reads, failures, lost notifications and pages that come and go", () =>
    fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 60 }), async steps => {
        const { reads, wake, stop } = open()
        let version = 1
        // A read sees the state at some time between its begin and its end.
        const looking: PromiseWithResolvers<void>[] = []
        const answering: PromiseWithResolvers<void>[] = []
        let isFree = false
        let underWay = 0
        const read = async () => {
          expect(++underWay).toBe(1)
          const look = Promise.withResolvers<void>()
          const answer = Promise.withResolvers<void>()
          if (!isFree) looking.push(look)
          else look.resolve()
          try {
            await look.promise
            const seen = version
            if (!isFree) answering.push(answer)
            else answer.resolve()
            await answer.promise
            return seen
          } finally {
            underWay--
          }
        }
        const shared = { key: ["a"], names: ["a"], read, pauseMs: () => PAUSE_MS }
        const pages: ReturnType<typeof openPage>[] = []
        const all: Promise<void>[] = []
        const join = () => {
          const page = openPage(
            () => reads.follow(shared),
            () => version,
          )
          pages.push(page)
          all.push(page.running)
        }
        let isLost = false
        const change = (names: Names) => {
          version++
          wake(names)
        }
        const take: Record<typeof step extends fc.Arbitrary<infer S> ? S : never, () => unknown> = {
          "change, named": () => change(["x", "a"]),
          "change, unnamed": () => change(undefined),
          "change, lost": () => {
            isLost = true
            version++
          },
          "another changes": () => wake(["b"]),
          look: () => looking.shift()?.resolve(),
          answer: () => answering.shift()?.resolve(),
          fail: () => answering.shift()?.reject(new Error("broken")),
          join,
          leave: () => pages.shift()?.leave(),
          tick: () => pass(TICK_MS),
        }
        join()
        for (const each of steps) {
          await take[each]()
          await settle()
        }
        isFree = true
        for (const gate of [...looking, ...answering]) gate.resolve()
        await settle()
        for (const gate of answering) gate.resolve()
        await settle()
        // A wake-up that names nothing may wait for two seconds, and those who reconnect for a tick.
        await pass(isLost ? PAUSE_MS + 2 * TICK_MS : 2_000 + 2 * TICK_MS)
        expect(pages.map(page => page.shown.at(-1))).toEqual(pages.map(() => version))
        stop.abort()
        for (const page of pages) page.leave()
        await pass(TICK_MS)
        await Promise.all(all)
        expect(vi.getTimerCount()).toBe(0)
      }),
    ))
})
