/**
 * The service's current problems, as `/readyz` of any process reports them: the scan of the networks, endpoints, and
 * payouts.
 */

import { troublesInWords } from "./chain/endpoint-troubles.ts"
import type { Context } from "./context.ts"
import type { Troubles } from "./http/health.ts"
import { alarmsInWords } from "./payouts/alarms.ts"
import { scanTroubles } from "./scanner/scan-lag.ts"

/** Queries only the database. */
export async function troublesNow(ctx: Context): Promise<Troubles> {
  const [scan, payouts, endpoints] = await Promise.all([scanTroubles(ctx), alarmsInWords(ctx), troublesInWords(ctx)])
  return { faults: scan.faults, alarms: [...scan.alarms, ...payouts, ...endpoints] }
}
