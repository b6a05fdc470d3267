import { randomUUID } from "node:crypto"
import { sql } from "kysely"
import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from "vitest"
import { onPostgres } from "../../../test/database.ts"
import { until } from "../../../test/e2e/program.ts"
import { startService, type TestService } from "../../../test/service.ts"
import { gather } from "../db/gather.ts"
import { claimDue, freeLeases, withLease } from "./claim.ts"
import { runLoop } from "./run.ts"
import { openWakes } from "./wake.ts"
import type { Names } from "./wake-payload.ts"

let service: TestService
beforeAll(async () => {
  service = await startService()
})
afterAll(() => service.stop())
beforeEach(() => service.empty())

const job = { table: "cursors" } as const
const hash = `0x${"1".repeat(64)}` as never

async function cursors(n: number): Promise<void> {
  for (let id = 1; id <= n; id++)
    await service.ctx.db
      .insertInto("cursors")
      .values({ chain_id: id, block_number: 1n, block_hash: hash, finalized_number: 0n, run_at: new Date(id * 1_000) })
      .execute()
}

const claim = (more: { limit?: number; leaseMs?: number; now?: Date; nextRunAt?: Date; only?: number } = {}) =>
  claimDue(service.ctx.db, { ...job, now: new Date(), nextRunAt: new Date(0), limit: 1, leaseMs: 60_000, ...more })

describe("claimDue", () => {
  it("takes what is due, earliest first, and not what is not", async () => {
    await cursors(3)
    expect((await claim({ now: new Date(2_000), limit: 5 })).map(row => row.chain_id).sort()).toEqual([1, 2])
    expect(await claim({ now: new Date(2_000) })).toEqual([])
    expect((await claim()).map(row => row.chain_id)).toEqual([3])
  })

  it("takes what a process scheduled whose clock was a day ahead, and not what one did that was a minute ahead", async () => {
    await cursors(2)
    const at = (aheadMs: number) => new Date(Date.now() + aheadMs)
    await claim({ only: 1, now: at(86_400_000), nextRunAt: at(86_400_000), leaseMs: -1 })
    await claim({ only: 2, now: at(60_000), nextRunAt: at(60_000), leaseMs: -1 })
    expect((await claim({ limit: 5, nextRunAt: at(0) })).map(row => row.chain_id)).toEqual([1])
  })

  it("takes the one row that is named", async () => {
    await cursors(3)
    expect((await claim({ only: 2 })).map(row => row.chain_id)).toEqual([2])
    expect(await claim({ only: 2 })).toEqual([])
  })

  it(`gives a row to one of many rivals (${onPostgres ? "several connections" : "one connection"})`, async () => {
    await cursors(10)
    const taken = (await Promise.all(Array.from({ length: 30 }, () => claim()))).flat()
    expect(taken.map(row => row.chain_id).sort((a, b) => a - b)).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])
    expect(new Set(taken.map(row => row.claim_id)).size).toBe(10)
  })

  it("gives a row away again when its lease is over, under another claim", async () => {
    await cursors(1)
    // A lease that has ended already: the embedded clock can show one instant twice.
    const [first] = await claim({ leaseMs: -1 })
    const [second] = await claim()
    expect(second?.chain_id).toBe(1)
    expect(second?.claim_id).not.toBe(first?.claim_id)
  })
})

describe("withLease", () => {
  const leased = (work: () => Promise<void>, leaseMs = 60_000) =>
    withLease(service.ctx.db, { ...job, only: 1, leaseMs, now: new Date(), nextRunAt: new Date(0) }, work)
  const lease = () => service.ctx.db.selectFrom("cursors").select(["claim_id", "lease_until"]).executeTakeFirst()
  const free = { claim_id: null, lease_until: null }

  it("runs the work on one worker at a time, and releases the lease", async () => {
    await cursors(1)
    let inside: boolean | undefined
    expect(
      await leased(async () => {
        inside = await leased(async () => {})
      }),
    ).toBe(true)
    expect(inside).toBe(false)
    expect(await lease()).toEqual(free)
  })

  it("releases the lease when the work throws", async () => {
    await cursors(1)
    await expect(leased(() => Promise.reject(new Error("broken")))).rejects.toThrow("broken")
    expect(await lease()).toEqual(free)
  })

  it("renews the lease while the work runs, but not past its end", async () => {
    await cursors(1)
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })
    const { db } = service.ctx
    const leaseEnd = async () => (await lease())?.lease_until?.getTime() ?? 0
    /** The end of the lease, at first and after a renewal 100 ms later. */
    const renewed = async (leaseMs: number) => {
      let ends: number[] = []
      await leased(async () => {
        const first = await leaseEnd()
        await until("100 ms have passed", async () => Date.now() > first - 29_900)
        await db
          .updateTable("cursors")
          .set({ lease_until: new Date(0) })
          .execute()
        vi.advanceTimersByTime(10_000)
        await until("it is renewed", async () => (await leaseEnd()) > 0)
        ends = [first, await leaseEnd()]
      }, leaseMs)
      return ends as [number, number]
    }
    const [first, second] = await renewed(900_000)
    expect(second - first).toBeGreaterThanOrEqual(100)
    const [start, end] = await renewed(30_050)
    expect(end - start).toBe(50)
    expect(await lease()).toEqual(free)
    vi.useRealTimers()
  })

  it("releases the lease when the database takes it, where it did not at the end of the work", async () => {
    await cursors(1)
    const { db } = service.ctx
    const work = async () => {
      await sql`create function refuse() returns trigger language plpgsql as $$ begin raise 'refused'; end $$`.execute(
        db,
      )
      await sql`create trigger refuse before update on cursors for each row execute function refuse()`.execute(db)
    }
    await expect(leased(work)).rejects.toThrow("refused")
    expect((await lease())?.claim_id).toBeTypeOf("string")
    await sql`drop function refuse cascade`.execute(db)
    await until("released", async () => (await lease())?.claim_id === null)
    expect(await lease()).toEqual(free)
  })

  it("leaves the lease of a worker that claimed the row after it expired", async () => {
    await cursors(1)
    let second: string | null | undefined
    await leased(async () => {
      second = (await claim())[0]?.claim_id
      // A lease that has ended already: the embedded clock can show one instant twice.
    }, -1)
    expect(second).toBeTypeOf("string")
    expect((await lease())?.claim_id).toBe(second)
  })
})

describe("freeLeases", () => {
  it("gives rows back to whoever comes next, and forgets keys whose work was never done", async () => {
    await cursors(1)
    await claim()
    const merchant_id = await service.merchant("shop")
    const row = { merchant_id, route: "POST /", request_hash: "0".repeat(64), expires_at: new Date() }
    const running = { claim_id: randomUUID(), lease_until: new Date(Date.now() + 60_000) }
    await service.ctx.db
      .insertInto("idempotency_keys")
      .values([
        { ...row, key: "running", ...running },
        { ...row, key: "done", status: 201, answer: "{}" },
      ])
      .execute()
    expect(await claim()).toEqual([])
    await freeLeases(service.ctx.db)
    expect((await claim()).length).toBe(1)
    const keys = await service.ctx.db.selectFrom("idempotency_keys").select("key").execute()
    expect(keys.map(({ key }) => key)).toEqual(["done"])
  })
})

describe("wake-ups", () => {
  it("in a hurry wake this process at each call, without waiting for the database", async () => {
    const wakes = await openWakes({ db: service.ctx.db, listen: async () => {}, isListening: () => true })
    const waiter = wakes.subscribe("deliveries")
    for (let i = 0; i < 5; i++) {
      wakes.wakeSoon("deliveries")
      await waiter.next(3_600_000)
    }
    waiter.close()
  })

  it("reach whoever waits, and whoever asks right after", async () => {
    const wakes = service.ctx.wakes.subscribe("payments")
    const waiting = wakes.next(60_000)
    await service.ctx.wakes.wake("payments")
    await waiting
    const other = service.ctx.wakes.subscribe("verify")
    await service.ctx.wakes.wake("payments")
    await wakes.next(60_000)
    await other.next(1)
    wakes.close()
    other.close()
  })

  it("that many ask for at once are few notifications, each sent after it was asked for", async () => {
    let sent = 0
    const db = new Proxy(service.ctx.db, {
      get: (target, name) => {
        if (name === "getExecutor") sent++
        const value = Reflect.get(target, name)
        return typeof value === "function" ? value.bind(target) : value
      },
    })
    const wakes = await openWakes({ db, listen: async () => {}, isListening: () => true })
    await Promise.all(Array.from({ length: 50 }, () => wakes.wake("payouts")))
    const before = sent
    expect(before).toBeLessThan(3)
    await wakes.wake("payouts")
    expect(sent).toBe(before + 1)
  })

  it("name what changed, for all who asked meanwhile; where one named nothing, anything may have", async () => {
    const { wakes } = service.ctx
    const heard: Names[] = []
    wakes.onWake("payments", names => heard.push(names))
    const all = async (...asked: Names[]) => {
      await Promise.all(asked.map(names => wakes.wake("payments", names)))
      await until("it is heard", () => heard.length > 0)
      return heard.splice(0)
    }
    expect(await all(["cs_1"], ["cs_2", "cs_1"])).toEqual([["cs_1", "cs_2"]])
    expect(await all(["cs_1"], undefined, ["cs_2"])).toEqual([undefined])
    expect(await all([])).toEqual([[]])
    // Those that come while a process rests are named by the next notification.
    wakes.wakeSparingly("payments", ["set_1"])
    wakes.wakeSparingly("payments", ["set_2"])
    wakes.wakeSparingly("payments", ["set_3"])
    await until("all are heard", () => heard.length > 1)
    expect(heard).toEqual([["set_1"], ["set_2", "set_3"]])
  })

  it("that never come end with the time or the signal", async () => {
    const wakes = service.ctx.wakes.subscribe("payments")
    await wakes.next(1)
    const stop = new AbortController()
    const waiting = wakes.next(60_000, stop.signal)
    stop.abort()
    await waiting
    wakes.close()
  })
})

describe("gather", () => {
  it("reads what is asked for meanwhile as one, and never from before it was asked for", async () => {
    let version = 0
    const loads: { keys: readonly string[]; gate: PromiseWithResolvers<void> }[] = []
    const read = gather(async (keys: readonly string[]) => {
      const gate = Promise.withResolvers<void>()
      loads.push({ keys, gate })
      const seen = version
      await gate.promise
      return new Map(keys.filter(key => key !== "nothing").map(key => [key, seen]))
    })
    const first = read("a")
    await expect.poll(() => loads.length).toBe(1)
    version = 1
    const more = Promise.all([read("a"), read("b"), read("b"), read("nothing")])
    loads[0]?.gate.resolve()
    expect(await first).toBe(0)
    await expect.poll(() => loads.length).toBe(2)
    expect(loads[1]?.keys).toEqual(["a", "b", "nothing"])
    loads[1]?.gate.resolve()
    expect(await more).toEqual([1, 1, 1, undefined])
  })

  it("reads no more at once than a statement takes", async () => {
    const sizes: number[] = []
    const read = gather(async (keys: readonly number[]) => {
      sizes.push(keys.length)
      return new Map(keys.map(key => [key, -key]))
    })
    const keys = Array.from({ length: 2_500 }, (_, i) => i + 1)
    expect(await Promise.all(keys.map(key => read(key)))).toEqual(keys.map(key => -key))
    expect(sizes.sort((a, b) => b - a)).toEqual([1_000, 1_000, 500])
  })

  it("leaves those alone who come after a read that hangs or fails", async () => {
    const hanging = Promise.withResolvers<never>()
    const begun = Promise.withResolvers<void>()
    const read = gather(async (keys: readonly string[]) => {
      if (keys.includes("hangs")) begun.resolve()
      if (keys.includes("hangs")) return await hanging.promise
      if (keys.includes("fails")) throw new Error("broken")
      return new Map(keys.map(key => [key, key]))
    })
    const hangs = read("hangs")
    await begun.promise
    expect(await read("b")).toBe("b")
    await expect(read("fails")).rejects.toThrow("broken")
    expect(await read("d")).toBe("d")
    hanging.reject(new Error("cut"))
    await expect(hangs).rejects.toThrow("cut")
  })
})

describe("runLoop", () => {
  it("goes on after a failed round, runs early when woken, and ends at the signal", async () => {
    const stop = new AbortController()
    const rounds: number[] = []
    const gates = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    const loop = {
      name: "test",
      wokenBy: "verify" as const,
      gapMs: 0,
      round: async () => {
        rounds.push(rounds.length)
        gates[rounds.length - 1]?.resolve()
        if (rounds.length === 1) throw new Error("a bad moment")
        return 60_000
      },
    }
    const running = runLoop({ ...service.ctx, signal: stop.signal }, loop)
    await gates[0]?.promise
    await service.ctx.wakes.wake("verify")
    await gates[1]?.promise
    stop.abort()
    await running
    expect(rounds).toEqual([0, 1])
  })
})
