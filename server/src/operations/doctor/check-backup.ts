/** Checks that the last known backup is not too old. */
// I/O: queries the database through a function, because the command has no pool and no context.
import type { Settings } from "../../platform/config/settings.ts"
import { BACKUP_AGE } from "../../platform/db/last-backup.ts"
import type { Query } from "./check-database.ts"
import { type Finding, fine } from "./finding.ts"

const part = "database"
const check = "backup"
const HOUR_S = 3_600

/**
 * Reports if the last backup is older than BACKUP_MAX_AGE, or if there is none. No findings if that setting is off,
 * or if the database can't be queried.
 */
export async function checkBackup({ backupMaxAgeMs }: Settings, query: Query | undefined): Promise<Finding[]> {
  if (backupMaxAgeMs === 0 || !query) return []
  try {
    const [there] = await query("select to_regclass('installation') is not null as installed")
    if (!there?.installed) return []
    const [row] = await query(BACKUP_AGE)
    // A new installation has the same time to make its first backup.
    const ageS = Number(row?.backup_s ?? row?.age_s)
    if (ageS * 1_000 <= backupMaxAgeMs) return [fine(part, check, "the last backup is recent enough")]
    const message =
      row?.backup_s === null
        ? "no backup of the database is known"
        : `the last known backup of the database is ${Math.floor(ageS / HOUR_S)} hours old`
    const todo =
      "Run `sluice backup FILE` now, and each night. If another tool makes the backups, run `sluice backup --done` after each backup, or set BACKUP_MAX_AGE=0s."
    return [{ part, check, level: "alarm", message, todo }]
  } catch {
    // Another finding reports that the database can't be queried.
    return []
  }
}
