import { afterAll, beforeAll, expect, it } from "vitest"
import { openTestDatabase } from "../../../test/database.ts"
import { openClock } from "./clock.ts"
import type { OpenDatabase } from "./open.ts"

let database: OpenDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

const DAY_MS = 86_400_000
/** A machine whose clocks can be moved; its database's clock is this machine's. */
async function machine(aheadMs: number) {
  const moved = { wallMs: aheadMs, monotonicMs: 0 }
  const clock = await openClock(database.db, {
    wallMs: () => Date.now() + moved.wallMs,
    monotonicMs: () => performance.now() + moved.monotonicMs,
  })
  return { clock, moved, besideMs: () => Math.abs(clock.now().getTime() - Date.now()) }
}

it.each([DAY_MS, -DAY_MS, 61_000, -61_000])("has the database's time where this machine's is %i ms ahead", async ms => {
  const { clock, besideMs } = await machine(ms)
  expect(clock.isWrong()).toBe(true)
  expect(besideMs()).toBeLessThan(5_000)
})

it("takes a difference of seconds as right, and has the database's time anyway", async () => {
  const { clock, besideMs } = await machine(50_000)
  expect(clock.isWrong()).toBe(false)
  expect(besideMs()).toBeLessThan(5_000)
})

it("sees at once that this machine's clock was set, without asking the database", async () => {
  const { clock, moved, besideMs } = await machine(0)
  expect(clock.isWrong()).toBe(false)
  moved.wallMs = DAY_MS
  expect([clock.isWrong(), besideMs() < 5_000]).toEqual([true, true])
  moved.wallMs = 0
  expect(clock.isWrong()).toBe(false)
})

it("has the right time again when it has asked, after a sleep of the machine that its monotonic clock did not count", async () => {
  const { clock, moved, besideMs } = await machine(0)
  moved.monotonicMs = -DAY_MS
  expect(clock.isWrong()).toBe(true)
  await clock.measure()
  expect([clock.isWrong(), besideMs() < 5_000]).toEqual([false, true])
})
