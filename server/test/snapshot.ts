/**
 * Runs once before the tests: migrates an embedded database and keeps its files, from which each test file starts. To
 * create and migrate one takes five seconds of CPU, to load these files one.
 */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { PGlite } from "@electric-sql/pglite"
import type { TestProject } from "vitest/node"
import { overPGlite } from "../src/db/open.ts"

declare module "vitest" {
  interface ProvidedContext {
    /** The path of a migrated database's files, as a tar archive. */
    snapshot: string
  }
}

/** Writes the archive and provides its path; the function it answers removes it. */
export default async function setup(project: TestProject): Promise<() => void> {
  const folder = mkdtempSync(join(tmpdir(), "sluice-snapshot-"))
  const path = join(folder, "database.tar")
  const database = await PGlite.create()
  await overPGlite(database)
  const files = await database.dumpDataDir("none")
  writeFileSync(path, Buffer.from(await files.arrayBuffer()))
  await database.close()
  project.provide("snapshot", path)
  return () => rmSync(folder, { recursive: true })
}
