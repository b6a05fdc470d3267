// Escrows through kills of API processes and workers, reorgs, a lying endpoint and the ends of all times: what the chain has is in the books
// once, no call is made twice, and no payer's money is stranded; and altered rows that the same checks find. script/chaos has every step of
// every call, and a careless service that it must catch.
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { runEscrowChaos } from "./escrow.ts"
import { caughtOfTampered } from "./escrow-careless.ts"
import type { Story } from "./escrow-play.ts"

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("escrows through chaos", () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(() => postgres?.stop())

  const usual = { waves: 1, maxWaves: 5, reorgs: true, seed: 20_261_123, limitMs: 300_000 }

  it("are what the chain says they are, each call once; and rows that a careless service would leave are found", async () => {
    // One of each kind of step. Which of them one wave meets is chance; script/chaos goes on until each was met.
    const points = ["after row reserve", "after attempt reserve", "after send capture", "within counted refund"]
    const stories: Story[] = [
      "refunded in parts",
      "captured in parts",
      "captured and voided",
      "forgotten",
      "reclaimed",
      "moved",
      "unpaid",
    ]
    const given = { ...usual, points, killsOfEach: 1, mayMiss: 2, stories, tamper: true, postgresUrl: postgres.url }
    const report = await runEscrowChaos(given)
    expect(report.violations).toEqual([])
    expect(report.reorgs).toBeGreaterThan(0)
    for (const words of caughtOfTampered) expect(report.caught).toContainEqual(expect.stringMatching(words))
  }, 600_000)
})
