/**
 * Repeats the checks while a service runs. A finding that needs a person is an alarm in this process's `/readyz`
 * until it is fixed. Each alarm is logged once when it starts and once when it ends.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { sql } from "kysely"
import type { Context } from "../../platform/context.ts"
import { setupAlarms } from "../../platform/metrics.ts"
import { checkBackup } from "./check-backup.ts"
import { checkRates } from "./check-rates.ts"
import { checkReceipts } from "./check-receipts.ts"
import { alarmText, type Finding, isBad } from "./finding.ts"
import { checkAgain } from "./run-checks.ts"

const AGAIN_MS = 60_000
/**
 * The interval while there are alarms, because a problem that was just fixed should not stay in `/readyz` for a
 * minute.
 */
const AGAIN_WHILE_BAD_MS = 15_000

export interface StandingAlarms {
  /** Runs the checks once. Never rejects. */
  check(): Promise<void>
  /** Repeats the checks until the context's signal aborts. */
  watch(): Promise<void>
  /** The sentences of the current alarms. */
  alarms(): string[]
}

/**
 * The alarms about this process's settings and environment. `isServing`: whether the process answers requests at
 * BASE_URL.
 */
export function standingAlarms(ctx: Context, isServing: boolean): StandingAlarms {
  const { settings, signal } = ctx
  // The service uses the database's time, but this check is about the machine's own clock.
  const now = ctx.clock ? () => new Date() : ctx.now
  const ask = async (text: string) => (await sql.raw<Record<string, unknown>>(text).execute(ctx.db)).rows
  const query = settings.databaseUrl === undefined ? undefined : ask
  let standing = new Map<string, Finding>()
  const check = async () => {
    const found = [
      ...(await checkAgain({ settings, query, now, signal }, isServing)),
      // These are checked for an embedded database too, which only its own service can query.
      ...(await checkBackup(settings, ask)),
      ...(await checkRates(settings, ask)),
      ...(await checkReceipts(settings, ask)),
    ]
    if (signal.aborted) return
    const bad = found.filter(each => isBad(each) && !each.isWatched)
    const before = standing
    standing = new Map(bad.map(each => [keyOf(each), each]))
    for (const [key, found] of standing)
      if (!before.has(key)) ctx.log.error({ part: found.part, check: found.check, todo: found.todo }, alarmText(found))
    for (const [key, found] of before)
      if (!standing.has(key)) ctx.log.info({ part: found.part, check: found.check }, `ended: ${alarmText(found)}`)
    setupAlarms.reset()
    for (const { part, check } of bad) setupAlarms.set({ part, check }, 1)
  }
  const checkSafely = () =>
    check().catch(error => {
      if (!signal.aborted)
        ctx.log.error({ err: error }, "the installation could not be checked; the check will be retried")
    })
  return {
    check: checkSafely,
    watch: async () => {
      while (!signal.aborted) {
        await checkSafely()
        await sleep(standing.size > 0 ? AGAIN_WHILE_BAD_MS : AGAIN_MS, undefined, { signal }).catch(() => {})
      }
    },
    alarms: () => [...standing.values()].map(alarmText),
  }
}

/** The digits are removed, so that a drifting clock stays one alarm whatever the number of seconds. */
const keyOf = ({ part, check, message }: Finding): string => `${part} ${check} ${message.replace(/\d+/g, "")}`
