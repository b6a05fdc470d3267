/** `script/chaos`: the chaos of payouts, of agents' payments and of escrows, at full size, with reports; ends with 1 when anything did not hold. */
import { parseArgs } from "node:util"
import { startPostgres } from "../postgres.ts"
import { runChaos } from "./chaos.ts"
import { allPoints, runEscrowChaos } from "./escrow.ts"
import { caught as caughtAll } from "./escrow-careless.ts"
import { runX402Chaos } from "./x402.ts"

const { values } = parseArgs({
  options: {
    payouts: { type: "string", default: "1500" },
    workers: { type: "string", default: "4" },
    kills: { type: "string", default: "15" },
    "agent-kills": { type: "string", default: "8" },
    "escrow-kills": { type: "string", default: "2" },
    seed: { type: "string", default: `${Date.now() % 1_000_000}` },
    verbose: { type: "boolean" },
  },
})
const whole = (text: string) => Number.parseInt(text, 10)
const print = (text: string) => process.stdout.write(`${text}\n`)
const postgres = await startPostgres()
const say = values.verbose ? { say: print } : {}
const payouts = whole(values.payouts)
const agentKills = whole(values["agent-kills"])
const escrowKills = whole(values["escrow-kills"])
const reports: Record<string, { violations: string[] }> = {}
try {
  if (payouts > 0)
    reports.payouts = await runChaos({
      postgresUrl: postgres.url,
      payouts,
      workers: whole(values.workers),
      killsOfEach: whole(values.kills),
      rates: { refuse: 0.05, breakOff: 0.05, takeAndBreak: 0.2, swallow: 0.05, forget: 0.1, hide: 0.1, lie: 0.1 },
      signer: {
        late: 0.1,
        down: 0.02,
        cut: 0.02,
        refuse: 0.02,
        hang: 0.01,
        garbage: 0.02,
        empty: 0.01,
        "other key": 0.02,
        "other hash": 0.02,
      },
      reorgs: true,
      alter: "all",
      seed: whole(values.seed),
      limitMs: 1_800_000,
      ...say,
    })
  const agents = { waves: 3 * agentKills, killsOfEach: agentKills, reorgs: true, limitMs: 1_800_000, ...say }
  if (agentKills > 0) reports.agents = await runX402Chaos({ ...agents, postgresUrl: postgres.url })
  // A careless service first, so that the checks are known to see. A wave meets some ten kills.
  const escrows = {
    killsOfEach: escrowKills,
    seed: whole(values.seed),
    reorgs: true,
    postgresUrl: postgres.url,
    ...say,
  }
  if (escrowKills > 0) {
    const careless = { ...escrows, points: ["after row capture"], killsOfEach: 1, waves: 1, maxWaves: 1, mutant: true }
    const caught = await runEscrowChaos({ ...careless, limitMs: 120_000 })
    const missed = caughtAll.filter(words => !caught.violations.some(each => words.test(each)))
    const most = { waves: 4 * escrowKills, maxWaves: 24 * escrowKills, limitMs: 7_200_000 }
    reports.escrows = await runEscrowChaos({ ...escrows, ...most, points: allPoints })
    reports.escrows.violations.push(...missed.map(words => `a careless service was not caught: ${words}`))
  }
} finally {
  await postgres.stop()
}
print(`seed ${values.seed}: ${JSON.stringify(reports, null, 2)}`)
process.exit(Object.values(reports).every(({ violations }) => violations.length === 0) ? 0 : 1)
