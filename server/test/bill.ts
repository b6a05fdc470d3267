/** A worker that only advances subscriptions, as a process of its own on `DATABASE_URL`, for tests that kill it. */
import { setTimeout as sleep } from "node:timers/promises"
import { readSettings } from "../src/platform/config/read-settings.ts"
import { atOnce, type Context } from "../src/platform/context.ts"
import { openPostgres } from "../src/platform/db/open.ts"
import { openWakes } from "../src/platform/jobs/wake.ts"
import { processLimits } from "../src/platform/limits/limiter.ts"
import { openLog } from "../src/platform/log.ts"
import { advanceSubscriptions } from "../src/products/subscriptions/advance-subscriptions.ts"
import { paperNetwork } from "./paper-network.ts"

const settings = readSettings()
const database = await openPostgres(settings.databaseUrl ?? "", () => {})
const ctx: Context = {
  db: database.db,
  settings,
  log: openLog("fatal"),
  now: () => new Date(),
  chain: { networks: [paperNetwork] },
  limits: processLimits(),
  onCommit: atOnce,
  wakes: await openWakes(database),
  signal: new AbortController().signal,
}
process.stdout.write("billing\n")
for (;;) await sleep(await advanceSubscriptions(ctx))
