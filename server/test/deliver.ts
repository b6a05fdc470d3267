/** A worker that only delivers, as a process of its own on `DATABASE_URL`, for tests that kill it. */
import { runDeliveries } from "../src/account/webhooks/deliver-events.ts"
import { openSender } from "../src/account/webhooks/send.ts"
import { readSettings } from "../src/platform/config/read-settings.ts"
import { atOnce, type Context } from "../src/platform/context.ts"
import { openPostgres } from "../src/platform/db/open.ts"
import { openWakes } from "../src/platform/jobs/wake.ts"
import { processLimits } from "../src/platform/limits/limiter.ts"
import { openLog } from "../src/platform/log.ts"

const settings = readSettings()
const database = await openPostgres(settings.databaseUrl ?? "", () => {})
const stop = new AbortController()
process.on("SIGTERM", () => stop.abort())
const ctx: Context = {
  db: database.db,
  settings,
  log: openLog("fatal"),
  now: () => new Date(),
  chain: { networks: [] },
  limits: processLimits(),
  onCommit: atOnce,
  wakes: await openWakes(database),
  signal: stop.signal,
}
process.stdout.write("delivering\n")
await runDeliveries(ctx, openSender(settings.webhooks))
await database.close()
