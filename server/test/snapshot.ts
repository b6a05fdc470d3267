/** Runs once before all tests: migrates a database, from whose copy each test file starts. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { makeSnapshot, makeTemplate } from "./database.ts"

/**
 * Names what is copied in `TEST_TEMPLATE`, a database on the server at `DATABASE_URL`, or without one in `TEST_SNAPSHOT`, a
 * folder with the embedded database's files; the returned function removes the folder.
 */
export default async function setup(): Promise<() => void> {
  const server = process.env.DATABASE_URL
  if (server !== undefined) {
    process.env.TEST_TEMPLATE = await makeTemplate(server)
    return () => undefined
  }
  const folder = mkdtempSync(join(tmpdir(), "sluice-snapshot-"))
  await makeSnapshot(folder)
  process.env.TEST_SNAPSHOT = folder
  return () => rmSync(folder, { recursive: true })
}
