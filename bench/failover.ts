/**
 * The failover drill of docs/operators/operations.md, with the time of each step: Redis, the primary and one of two regions are
 * lost while buyers pay. `script/bench failover [--checkouts 300] [--buyers 8]`. It throws when anything is lost or
 * done twice.
 */
import { parseArgs } from "node:util"
import { failoverDrill } from "../server/test/e2e/failover-drill.ts"

const { values } = parseArgs({
  options: { checkouts: { type: "string", default: "300" }, buyers: { type: "string", default: "8" } },
})
const times = await failoverDrill({ checkouts: Number(values.checkouts), buyers: Number(values.buyers) })
for (const [step, seconds] of Object.entries(times))
  process.stdout.write(`${step.padEnd(10)}${seconds.toFixed(1).padStart(8)} s after the loss of the primary\n`)
process.exit(0)
