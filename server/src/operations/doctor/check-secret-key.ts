/** Checks that SECRET_KEY is the key with which the installation's secrets are encrypted. */
// I/O: queries the database through a function, because the command has no pool and no context.
import type { Settings } from "../../platform/config/settings.ts"
import { fitOf, KEY_FAULTS, READ_SECRET_KEY } from "../../platform/db/claim-secret-key.ts"
import type { Query } from "./check-database.ts"
import { type Finding, fine } from "./finding.ts"

const part = "secrets"
const check = "secret_key"

/**
 * Returns the finding. There is none if the database is embedded or can't be queried, which other findings report.
 * `isRunning`: this process already serves, and its key was right when it started.
 */
export async function checkSecretKey(
  { secretKeys }: Pick<Settings, "secretKeys">,
  query: Query | undefined,
  isRunning: boolean,
): Promise<Finding[]> {
  if (!query || secretKeys.length === 0) return []
  const recorded = await readRecord(query)
  if (recorded === undefined) return []
  const fit = fitOf(secretKeys, recorded)
  if (fit === "right") return [fine(part, check, "SECRET_KEY is the key of this installation")]
  if (fit !== "new") return [{ part, check, level: isRunning ? "alarm" : "fault", ...KEY_FAULTS[fit] }]
  if (!isRunning)
    return [
      {
        part,
        check,
        level: "note",
        message: "SECRET_KEY is new: after the next start it encrypts everything that is written",
      },
    ]
  return [
    {
      part,
      check,
      level: "alarm",
      message: "this process encrypts with a SECRET_KEY that the installation has retired",
      todo: "Start this process with the new key as SECRET_KEY, then run `sluice reencrypt` again: see docs/operators/operations.md (SECRET_KEY).",
    },
  ]
}

async function readRecord(query: Query): Promise<string | undefined> {
  try {
    const [there] = await query("select to_regclass('installation') is not null as installed")
    const [row] = there?.installed ? await query(READ_SECRET_KEY) : []
    return row && String(row.value)
  } catch {
    return undefined
  }
}
