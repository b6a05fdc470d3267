/** A worker that only delivers, as a process of its own on `DATABASE_URL`, for tests that kill it. */
import { readSettings } from "../src/config/read-settings.ts"
import { atOnce, type Context } from "../src/context.ts"
import { openPostgres } from "../src/db/open.ts"
import { openWakes } from "../src/jobs/wake.ts"
import { processLimits } from "../src/limits/limiter.ts"
import { openLog } from "../src/log.ts"
import { runDeliveries } from "../src/webhooks/deliver-events.ts"
import { openSender } from "../src/webhooks/send.ts"

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
