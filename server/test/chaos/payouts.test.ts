// Hundreds of payouts, each made exactly once, through everything that may happen to the processes, the nodes, the signer and the chain;
// and two careless engines that the same test catches.
import { afterAll, beforeAll, describe, expect, it } from "vitest"
import { postgresBinaries, startPostgres } from "../postgres.ts"
import { type ChaosOptions, runChaos, type SignerRates } from "./chaos.ts"

let postgres: Awaited<ReturnType<typeof startPostgres>>

const honest = { refuse: 0, breakOff: 0, takeAndBreak: 0, swallow: 0, forget: 0, hide: 0, lie: 0 }

const faultySigner: SignerRates = {
  late: 0.1,
  down: 0.01,
  cut: 0.01,
  refuse: 0.01,
  hang: 0.005,
  garbage: 0.01,
  empty: 0.01,
  "other key": 0.01,
  "other hash": 0.01,
}

const usual: Omit<ChaosOptions, "postgresUrl"> = {
  payouts: 150,
  workers: 3,
  killsOfEach: 1,
  rates: { refuse: 0.04, breakOff: 0.04, takeAndBreak: 0.2, swallow: 0.05, forget: 0.1, hide: 0.05, lie: 0.03 },
  reorgs: true,
  seed: 20_261_121,
  limitMs: 300_000,
}

// Where there is no Postgres, script/test says so and counts it.
describe.runIf(postgresBinaries())("payouts through chaos", () => {
  beforeAll(async () => {
    postgres = await startPostgres()
  })
  afterAll(() => postgres?.stop())

  it("are each made once, and all invariants hold", async () => {
    const report = await runChaos({ ...usual, signer: faultySigner, alter: "one", postgresUrl: postgres.url })
    expect(report.violations, postgres.deadlocks()).toEqual([])
    // A row of each table was altered afterwards, and found: transfers, payouts, attempts, books, payments, claims and more.
    expect(report.altered).toBeGreaterThan(7)
    expect(report.reconciliations).toBeGreaterThan(10)
    // The test was one: every way to end a worker was met, and blocks were reorganized.
    expect(Object.entries(report.kills).filter(([, n]) => n === 0)).toEqual([])
    expect(report.reorgs).toBeGreaterThan(0)
    expect(report.signer).toMatchObject({ late: expect.any(Number), twice: expect.any(Number) })
    expect(report.signer.twice).toBeGreaterThan(0)
    expect(Object.keys(report.signer).length).toBeGreaterThan(4)
  }, 600_000)

  it.each([
    // No broadcast is answered: a slow machine sends all payouts in one exchange, and both endpoints may then be lucky.
    ["requeue on unknown error", { ...honest, takeAndBreak: 1 }],
    ["nonce used, no receipt: requeue", { ...honest, forget: 0.3 }],
  ] as const)("catch an engine that does this: %s", async (mutant, rates) => {
    const mild = { payouts: 60, workers: 2, killsOfEach: 0, reorgs: false }
    const report = await runChaos({ ...usual, ...mild, rates, mutant, limitMs: 120_000, postgresUrl: postgres.url })
    expect(report.violations.join("\n")).toMatch(/paid twice|missing|jammed/)
    expect(report.violations.join("\n")).toMatch(/I3/)
  })

  it("hold for the same faults without the mutant", async () => {
    const mild = { payouts: 60, workers: 2, killsOfEach: 0, reorgs: false }
    const rates = { ...honest, takeAndBreak: 0.7, forget: 0.3 }
    const report = await runChaos({ ...usual, ...mild, rates, postgresUrl: postgres.url })
    expect(report.violations).toEqual([])
  })
})
