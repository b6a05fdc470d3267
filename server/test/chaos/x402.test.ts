// Agents' payments through kills of API and relay processes at each step, and through reorgs: each is carried out once and answered once;
// and a careless service that the same test catches.
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { postgresBinaries, startPostgres, type TestPostgres } from "../postgres.ts"
import { runX402Chaos } from "./x402.ts"

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("agents' payments through chaos", () => {
  let postgres: TestPostgres
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(() => postgres?.stop())

  it("are each carried out once and answered once, and the books are the chain's", async () => {
    // Before its claim is committed, a payment has left nothing; script/chaos ends processes there too.
    const points = ["after claim's commit", "before serving", "after serving", "before answered"] as const
    const usual = { waves: 1, killsOfEach: 1, points, reorgs: true, limitMs: 120_000 }
    const report = await runX402Chaos({ ...usual, postgresUrl: postgres.url })
    expect(report.violations).toEqual([])
    expect(report.reorgs).toBeGreaterThan(0)
  }, 400_000)

  it("catch a careless service: it answers a call twice, and nobody who paid for content", async () => {
    const mild = { waves: 2, killsOfEach: 0, reorgs: false, limitMs: 60_000 }
    const report = await runX402Chaos({ ...mild, mutant: true, postgresUrl: postgres.url })
    expect(report.violations).toContainEqual(expect.stringMatching(/^content 0 paid and has nothing/))
    expect(report.violations).toContainEqual(expect.stringMatching(/^GET 1 was served \d+ times/))
  })
})
