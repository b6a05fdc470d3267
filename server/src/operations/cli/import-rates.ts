/**
 * `sluice rates import`: stores rates from a file of the European Central Bank, for a service that can't fetch the
 * file.
 */
import { readFile } from "node:fs/promises"
import { parseEcb } from "../../ledger/rates/ecb.ts"
import { storeEcb } from "../../ledger/rates/store-rates.ts"
import { readSettings } from "../../platform/config/read-settings.ts"
import { assertInstallation } from "../../platform/db/claim-installation.ts"
import { openForCommand } from "./open-for-command.ts"
import { parseCommandLine, runCommand, UsageError } from "./run-command.ts"

const usage = `Stores exchange rates from a file of the European Central Bank.

  sluice rates import FILE

  FILE      eurofxref-daily.xml, eurofxref-hist-90d.xml, eurofxref-hist.xml or eurofxref-hist.csv, from
            https://www.ecb.europa.eu/stats/policy_and_exchange_rates/euro_reference_exchange_rates/

Use it if the service can't fetch RATES_URL, or for the time before RATES was set. Rates apply until one day after the
file's last day, so import a file each working day. A value that was already shown never changes, because a known rate is
not replaced. Run this command with the service's environment variables. The embedded database serves only one process: if
you use it, stop the service first.
Exits with 0 when the file is stored, 1 when it is not, 2 for an invalid command line.
`

async function main(args: string[]): Promise<string> {
  const { positionals, values } = parseCommandLine(args, { allowPositionals: true })
  const [action, file, ...more] = positionals
  if (values.help) return usage.trimEnd()
  if (action !== "import" || !file || more.length > 0) throw new UsageError("Name the action (import) and a file.")
  const days = parseEcb(await readFile(file, "utf8"))
  const settings = readSettings()
  const { db, close } = await openForCommand(settings)
  try {
    await assertInstallation(db, settings.mode)
    const added = await storeEcb(db, days, { now: new Date(), newest: false })
    return `${added} rates of ${days.length} ${days.length === 1 ? "day" : "days"} are new, up to ${days.at(-1)?.date}.`
  } finally {
    await close()
  }
}

/** Runs the command with the arguments of the process. */
export const run = (): Promise<void> => runCommand("rates", main, { failed: "Nothing was stored." })
