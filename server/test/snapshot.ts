/** Runs once before the tests of each database: migrates a database, from whose copy each test file starts. */
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import type { TestProject } from "vitest/node"
import { makeSnapshot, makeTemplate } from "./database.ts"

/**
 * Names what is copied in `TEST_TEMPLATE`, a database on the server of these tests, and for those on the embedded one in
 * `TEST_SNAPSHOT`, a folder with its files; the returned function removes the folder.
 */
export default async function setup({ config }: TestProject): Promise<() => void> {
  const server = config.env?.DATABASE_URL
  if (server !== undefined) {
    process.env.TEST_TEMPLATE = await makeTemplate(server)
    return () => undefined
  }
  const folder = mkdtempSync(join(tmpdir(), "sluice-snapshot-"))
  await makeSnapshot(folder)
  process.env.TEST_SNAPSHOT = folder
  return () => rmSync(folder, { recursive: true })
}
