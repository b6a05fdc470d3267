/** Runs once before all tests: migrates a database, from whose copy each test file starts. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { makeTemplate, migratedFiles } from "./database.ts"

/**
 * Names the copy's source in `TEST_TEMPLATE`, a database on the server at `DATABASE_URL`, or without one in
 * `TEST_SNAPSHOT`, an archive of the embedded database's files; the returned function removes the archive.
 */
export default async function setup(): Promise<() => void> {
  const server = process.env.DATABASE_URL
  if (server !== undefined) {
    process.env.TEST_TEMPLATE = await makeTemplate(server)
    return () => undefined
  }
  const folder = mkdtempSync(join(tmpdir(), "sluice-snapshot-"))
  process.env.TEST_SNAPSHOT = join(folder, "database.tar")
  const files = await migratedFiles()
  writeFileSync(process.env.TEST_SNAPSHOT, Buffer.from(await files.arrayBuffer()))
  return () => rmSync(folder, { recursive: true })
}
