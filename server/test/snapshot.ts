/** Runs once before all tests: migrates an embedded database and keeps its files, from which each test file starts. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { migratedFiles } from "./database.ts"

/** Writes the archive and names it in `TEST_SNAPSHOT`; the function it answers removes it. */
export default async function setup(): Promise<() => void> {
  const folder = mkdtempSync(join(tmpdir(), "sluice-snapshot-"))
  process.env.TEST_SNAPSHOT = join(folder, "database.tar")
  const files = await migratedFiles()
  writeFileSync(process.env.TEST_SNAPSHOT, Buffer.from(await files.arrayBuffer()))
  return () => rmSync(folder, { recursive: true })
}
