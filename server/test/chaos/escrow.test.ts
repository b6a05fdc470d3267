// Escrows through kills of API processes and workers, reorgs, a lying endpoint and the ends of all times: what the chain has is in the books
// once, no call is made twice, and no payer's money is stranded; and a careless service that the same test catches.
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { runEscrowChaos } from "./escrow.ts"
import { caught } from "./escrow-careless.ts"
import type { Story } from "./escrow-play.ts"

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("escrows through chaos", () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(() => postgres?.stop())

  const usual = { waves: 1, mostWaves: 1, reorgs: true, seed: 20_261_123, limitMs: 300_000 }

  it("are what the chain says they are, each call once", async () => {
    // One of each kind of step, and each call; script/chaos has every step of every call.
    const points = [
      ...["after row reserve", "within row refund"],
      ...["after attempt reserve", "after send capture", "before mined void", "within counted refund"],
    ]
    const stories: Story[] = [
      ...(["refunded in parts", "captured in parts", "captured and voided", "forgotten", "reclaimed"] as const),
      ...(["moved", "withdrawn", "unpaid"] as const),
    ]
    const report = await runEscrowChaos({ ...usual, points, killsOfEach: 1, stories, postgresUrl: postgres.url })
    expect(report.violations).toEqual([])
    expect(report.reorgs).toBeGreaterThan(0)
    // Which points one wave meets is chance: 1 to 6 on a busy machine. script/chaos goes on until each was met.
    expect(Object.keys(report.kills).length).toBeGreaterThan(0)
  }, 600_000)

  it("catch a careless service: a capture made again after a kill, an event sent twice, a reorg ignored", async () => {
    const mild = { ...usual, points: ["after row capture"], killsOfEach: 1, mutant: true }
    const { violations } = await runEscrowChaos({ ...mild, postgresUrl: postgres.url })
    for (const words of caught) expect(violations).toContainEqual(expect.stringMatching(words))
  }, 600_000)
})
