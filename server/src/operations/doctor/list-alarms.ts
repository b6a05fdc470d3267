/**
 * Lists the alarms that need a person, as `/readyz` of any process reports them: about the scan of the networks,
 * endpoints, payouts, and subscriptions.
 */
import { setTimeout as sleep } from "node:timers/promises"
import { scanAlarms } from "../../ledger/scanner/watch-scan-lag.ts"
import { alarmMessages } from "../../ledger/txmanager/report-alarms.ts"
import { troubleMessages } from "../../platform/chain/note-endpoint-troubles.ts"
import type { Context } from "../../platform/context.ts"
import { heldChanges } from "../../products/insight/find-held-changes.ts"
import { failingSubscriptions } from "../../products/subscriptions/advance-subscriptions.ts"
import { waitingAlarms } from "./waiting-alarms.ts"

const WATCH_MS = 10_000

function limitMessages({ limits }: Context): string[] {
  const trouble = limits.trouble?.()
  return trouble === undefined ? [] : [trouble]
}

function replicaMessages({ replica }: Context): string[] {
  const trouble = replica?.trouble()
  return trouble === undefined ? [] : [`replica: left out, so the primary serves all reads: ${trouble}`]
}

/** Lists the current alarms; queries only the database. `standing` are the alarms from this process's own checks. */
export async function alarmsNow(ctx: Context, standing: readonly string[] = []): Promise<string[]> {
  const [scan, payouts, endpoints, subscriptions, changes] = await Promise.all([
    scanAlarms(ctx),
    alarmMessages(ctx, waitingAlarms),
    troubleMessages(ctx),
    failingSubscriptions(ctx),
    heldChanges(ctx),
  ])
  const here = [...replicaMessages(ctx), ...limitMessages(ctx)]
  // A set, because the rounds and the checks can report the same problem in the same words, such as a wallet without
  // gas.
  return [...new Set([...standing, ...here, ...scan, ...payouts, ...endpoints, ...subscriptions, ...changes])]
}

/**
 * Checks the scans repeatedly until the context's signal aborts, so that the metrics of every process show a scan
 * that has stopped. The only running process may be an API process whose `/readyz` nobody requests.
 */
export async function watchScans(ctx: Context): Promise<void> {
  while (!ctx.signal.aborted) {
    // If the database can't be reached, other alarms report it.
    await scanAlarms(ctx).catch(() => undefined)
    await sleep(WATCH_MS, undefined, { signal: ctx.signal }).catch(() => undefined)
  }
}
