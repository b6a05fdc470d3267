/**
 * A prepared embedded database, as a first start would make it. `script/install` makes this database once
 * (`server/tools/prepare-database.ts`), and each new sandbox starts with a copy. Making a new database takes three
 * seconds.
 */
// I/O: reads and copies files; a start needs them before there is a context.
import { createHash } from "node:crypto"
import { constants, cpSync, existsSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { readMigrations } from "./migrate.ts"

/** The folder of `script/install`: next to the packages, and removed with them. Operators' packages have none. */
export const CACHE = fileURLToPath(new URL("../../../../node_modules/.cache/sluice", import.meta.url))

/**
 * The folder of the prepared database with exactly this version's schema. The folder's name depends on all migrations.
 */
export function preparedIn(cache: string): string {
  const stamp = createHash("sha256")
  for (const { name, checksum } of readMigrations()) stamp.update(`${name} ${checksum}\n`)
  return join(cache, `database-${stamp.digest("hex").slice(0, 16)}`)
}

/** Copies the prepared database into the empty folder `dir`, if there is one; returns whether it did. */
export function copyPrepared(dir: string, cache = CACHE): boolean {
  const prepared = preparedIn(cache)
  if (!existsSync(prepared)) return false
  cpSync(prepared, dir, { recursive: true, mode: constants.COPYFILE_FICLONE })
  return true
}
