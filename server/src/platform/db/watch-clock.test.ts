import { afterAll, beforeAll, expect, it } from "vitest"
import { openTestDatabase } from "../../../test/database.ts"
import type { OpenDatabase } from "./open.ts"
import { openClock } from "./watch-clock.ts"

let database: OpenDatabase
beforeAll(async () => {
  database = await openTestDatabase()
})
afterAll(() => database.close())

const DAY_MS = 86_400_000
const APART = "the clocks of this machine and of Postgres differ by more than a minute"
/** A machine whose clocks can be moved; its database's clock is this machine's, and no endpoint answers it. */
async function machine(aheadMs: number, newestBlockMs: () => Promise<number | undefined> = async () => undefined) {
  const moved = { wallMs: aheadMs, monotonicMs: 0 }
  const clock = await openClock(database.db, {
    wallMs: () => Date.now() + moved.wallMs,
    monotonicMs: () => performance.now() + moved.monotonicMs,
    newestBlockMs,
  })
  return { clock, moved, besideMs: () => Math.abs(clock.now().getTime() - Date.now()) }
}

it.each([DAY_MS, -DAY_MS, 61_000, -61_000])("has the database's time where this machine's is %i ms ahead", async ms => {
  const { clock, besideMs } = await machine(ms)
  expect(clock.trouble()).toBe(APART)
  expect(besideMs()).toBeLessThan(5_000)
})

it("takes a difference of seconds as right, and has the database's time anyway", async () => {
  const { clock, besideMs } = await machine(50_000)
  expect(clock.trouble()).toBeUndefined()
  expect(besideMs()).toBeLessThan(5_000)
})

it("sees at once that this machine's clock was set, without asking the database", async () => {
  const { clock, moved, besideMs } = await machine(0)
  expect(clock.trouble()).toBeUndefined()
  moved.wallMs = DAY_MS
  expect([clock.trouble(), besideMs() < 5_000]).toEqual([APART, true])
  moved.wallMs = 0
  expect(clock.trouble()).toBeUndefined()
})

it("has the right time again when it has asked, after a sleep of the machine that its monotonic clock did not count", async () => {
  const { clock, moved, besideMs } = await machine(0)
  moved.monotonicMs = -DAY_MS
  expect(clock.trouble()).toBe(APART)
  await clock.measure()
  expect([clock.trouble(), besideMs() < 5_000]).toEqual([undefined, true])
})

// To the process whose clock is 61 s beside that of the database either may be the right one.
it.each([
  ["agrees with Postgres", 61_000, 2_000, "; judging by the newest block, the clock of this machine is wrong"],
  ["agrees with this machine", 61_000, -59_000, "; judging by the newest block, the clock of Postgres is wrong"],
  [
    "agrees with this machine, which is behind",
    -61_000,
    63_000,
    "; judging by the newest block, the clock of Postgres is wrong",
  ],
  ["is old by both", 61_000, 600_000, ""],
  ["is half way between", 61_000, -30_500, ""],
])("names the clock that is wrong where the newest block %s", async (_what, aheadMs, ageMs, verdict) => {
  const { clock, moved } = await machine(aheadMs, async () => Date.now() - ageMs)
  expect(clock.trouble()).toBe(APART)
  await clock.measure()
  expect(clock.trouble()).toBe(`${APART}${verdict}`)
  moved.wallMs = 0
  await clock.measure()
  expect(clock.trouble()).toBeUndefined()
})

it("says no more than it knows where no endpoint can be asked", async () => {
  const { clock } = await machine(DAY_MS, () => Promise.reject(new Error("silent")))
  await clock.measure()
  expect(clock.trouble()).toBe(APART)
})
