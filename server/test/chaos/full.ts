/** `script/chaos`: the chaos of payouts at full size, with a report; ends with 1 when anything did not hold. */
import { parseArgs } from "node:util"
import { startPostgres } from "../postgres.ts"
import { runChaos } from "./chaos.ts"

const { values } = parseArgs({
  options: {
    payouts: { type: "string", default: "1500" },
    workers: { type: "string", default: "4" },
    kills: { type: "string", default: "15" },
    seed: { type: "string", default: `${Date.now() % 1_000_000}` },
    verbose: { type: "boolean" },
  },
})
const whole = (text: string) => Number.parseInt(text, 10)
const print = (text: string) => process.stdout.write(`${text}\n`)
const postgres = await startPostgres()
const report = await runChaos({
  postgresUrl: postgres.url,
  payouts: whole(values.payouts),
  workers: whole(values.workers),
  killsOfEach: whole(values.kills),
  rates: { refuse: 0.05, breakOff: 0.05, takeAndBreak: 0.2, swallow: 0.05, forget: 0.1, hide: 0.1, lie: 0.1 },
  reorgs: true,
  alter: "all",
  seed: whole(values.seed),
  limitMs: 1_800_000,
  ...(values.verbose ? { say: print } : {}),
}).finally(() => postgres.stop())
print(`seed ${values.seed}: ${JSON.stringify(report, null, 2)}`)
process.exit(report.violations.length === 0 ? 0 : 1)
