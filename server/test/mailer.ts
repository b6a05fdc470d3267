/** A worker that only sends mails, as a process of its own on `DATABASE_URL`, for tests that kill it. */
import { setTimeout as sleep } from "node:timers/promises"
import { sendMails } from "../src/account/notifications/send-mails.ts"
import { readSettings } from "../src/platform/config/read-settings.ts"
import { atOnce, type Context } from "../src/platform/context.ts"
import { openPostgres } from "../src/platform/db/open.ts"
import { openWakes } from "../src/platform/jobs/wake.ts"
import { processLimits } from "../src/platform/limits/limiter.ts"
import { openLog } from "../src/platform/log.ts"

const PAUSE_MS = 50

const settings = readSettings()
const database = await openPostgres(settings.databaseUrl ?? "", () => {})
const stop = new AbortController()
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
process.stdout.write("mailing\n")
for (;;) {
  await sendMails(ctx)
  await sleep(PAUSE_MS)
}
