/**
 * Makes the embedded database that new sandboxes begin with (`prepared-database.ts`), unless there is one of this version's schema.
 * `script/install` runs it. It has no templates for other databases, which are half of its files.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs"
import { basename, join } from "node:path"
import { openPGlite, overPGlite } from "../src/platform/db/open.ts"
import { CACHE, preparedIn } from "../src/platform/db/prepared-database.ts"

/** Makes it, and removes those of other versions. Several processes may do so at once: the first one counts. */
export async function prepareDatabase(cache: string): Promise<void> {
  const prepared = preparedIn(cache)
  if (existsSync(prepared)) return
  const dataDir = join(cache, `unfinished-${process.pid}`)
  mkdirSync(dataDir, { recursive: true })
  const first = await openPGlite({ dataDir })
  await first.exec("update pg_database set datistemplate = false")
  for (const name of ["template0", "template1"]) await first.exec(`drop database ${name}`)
  await first.close()
  await (await overPGlite(await openPGlite({ dataDir }))).close()
  try {
    renameSync(dataDir, prepared)
  } catch (error) {
    rmSync(dataDir, { recursive: true, force: true })
    if (!existsSync(prepared)) throw error
  }
  for (const name of readdirSync(cache))
    if (name.startsWith("database-") && name !== basename(prepared)) rmSync(join(cache, name), { recursive: true })
}

if (import.meta.main) await prepareDatabase(CACHE)
