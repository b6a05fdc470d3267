/** Opens the service's database for a command that needs nothing else from the service. */
import { existsSync } from "node:fs"
import { join } from "node:path"
import { lockDataDir } from "../../platform/config/data-dir.ts"
import type { Settings } from "../../platform/config/settings.ts"
import { type Db, openDatabase } from "../../platform/db/open.ts"

/**
 * Opens the service's database for a command. Throws an Error with a sentence if there is none, or if the service is
 * using it.
 */
export async function openForCommand(settings: Settings): Promise<{ db: Db; close: () => Promise<void> }> {
  const { databaseUrl, dataDir } = settings
  // A mistyped folder must not create a database that no service uses.
  if (databaseUrl === undefined && !existsSync(join(dataDir, "db")))
    throw new Error(`There is no database in ${dataDir}. Start the service once, or check DATA_DIR and DATABASE_URL.`)
  const unlock = databaseUrl === undefined ? lockForUs(dataDir) : () => {}
  const database = await openDatabase(settings, () => {})
  return { db: database.db, close: () => database.close().finally(unlock) }
}

function lockForUs(dir: string): () => void {
  try {
    return lockDataDir(dir)
  } catch (error) {
    if ((error as { code?: unknown }).code !== "DATA_DIR_BUSY") throw error
    throw new Error(
      `The service is running on ${dir}, and its embedded database serves only one process. Stop the service, run this command, and start the service again.`,
    )
  }
}
