/** Checks that currency rates arrive. Without rates, lists and reports have no values in a currency. */
// I/O: queries the database through a function, because the command has no pool and no context.
import type { Settings } from "../../platform/config/settings.ts"
import type { Query } from "./check-database.ts"
import { type Finding, fine } from "./finding.ts"

const part = "database"
const check = "rates"
/**
 * The longest time since the rates were last fetched. At Easter the ECB publishes nothing for up to five days, but
 * its file can be fetched during that time.
 */
const MAX_AGE_S = 86_400

/** Reports rates that are older than a day. No findings if RATES is not set, or if the database can't be queried. */
export async function checkRates({ rates, ratesUrl }: Settings, query: Query | undefined): Promise<Finding[]> {
  if (rates === undefined || !query) return []
  try {
    const [there] = await query("select to_regclass('rate_sources') is not null as installed")
    if (!there?.installed) return []
    const [row] = await query(
      "select extract(epoch from now() - max(complete_until))::float8 as age_s from rate_sources",
    )
    // A new installation gets its first rates within a minute.
    if (row?.age_s === null || Number(row?.age_s) <= MAX_AGE_S)
      return [fine(part, check, "the exchange rates are up to date")]
    const message =
      "the exchange rates were last read more than a day ago, so newer payments have no value in lists and reports"
    const todo = `Check that a worker can reach ${ratesUrl}. If none can, import the file each working day: \`sluice rates import FILE\`.`
    return [{ part, check, level: "alarm", message, todo }]
  } catch {
    // Another finding reports that the database can't be queried.
    return []
  }
}
