/**
 * The restore drill of docs/operators/operations.md, timed: a backup made under load, an hour of blocks and payments after it,
 * the loss of the database, and everything until the last payment that came in meanwhile is paid out, once.
 * `script/bench restore [--after 200] [--blocks 1800]`. It exits with 1 when a payment is paid twice or not at all, or
 * when it took more than five minutes.
 *
 * The times are machine time. The operator types five commands: restore, start, `wallet show`, `adopt --all`, `resume`.
 */
import { parseArgs } from "node:util"
import { drill } from "../server/test/e2e/restore-drill.ts"

const LONGEST_S = 300

const { values } = parseArgs({
  options: { after: { type: "string", default: "200" }, blocks: { type: "string", default: "1800" } },
})
const after = Number(values.after)
const blocks = Number(values.blocks)
const times = await drill({ before: after / 4, meanwhile: after / 4, after, blocks, pauseMs: 500 })
for (const [step, seconds] of Object.entries(times))
  process.stdout.write(`${step.padEnd(10)}${seconds.toFixed(1).padStart(8)} s after the loss\n`)
process.exit(times.paid <= LONGEST_S ? 0 : 1)
