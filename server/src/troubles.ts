/**
 * The service's current problems, as `/readyz` of any process reports them: the scan of the networks, endpoints,
 * payouts, and subscriptions.
 */

import { troublesInWords } from "./chain/endpoint-troubles.ts"
import type { Context } from "./context.ts"
import type { Troubles } from "./http/health.ts"
import { alarmsInWords } from "./payouts/alarms.ts"
import { scanTroubles } from "./scanner/scan-lag.ts"
import { failingSubscriptions } from "./subscriptions/advance-subscriptions.ts"

function replicaInWords({ replica }: Context): string[] {
  const trouble = replica?.trouble()
  return trouble === undefined ? [] : [`replica: left out, and the primary serves all reads: ${trouble}`]
}

/** Queries only the database. `standing` are the alarms of this process's own checks. */
export async function troublesNow(ctx: Context, standing: readonly string[] = []): Promise<Troubles> {
  const [scan, payouts, endpoints, subscriptions] = await Promise.all([
    scanTroubles(ctx),
    alarmsInWords(ctx),
    troublesInWords(ctx),
    failingSubscriptions(ctx),
  ])
  // A set, because the rounds and the checks can report the same problem, such as a wallet without gas, in the same
  // words.
  return {
    faults: scan.faults,
    alarms: [
      ...new Set([...standing, ...replicaInWords(ctx), ...scan.alarms, ...payouts, ...endpoints, ...subscriptions]),
    ],
  }
}
