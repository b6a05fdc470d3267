/** Where the tests of a whole run keep their files. */
import { execFileSync } from "node:child_process"
import { chmodSync, mkdtempSync, rmSync, statfsSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

const MEMORY = "/dev/shm"
/** A whole run leaves under 2 GB there. */
const ENOUGH_BYTES = 6e9

/**
 * A folder in memory, if there is enough and programs may be run from it; otherwise one of the system's temporary folder. A new
 * database is 700 small files: to copy them took 0.42 s of CPU on disk, and takes 0.03 in memory.
 */
export function makeScratch(): string {
  if (hasRoom()) {
    const folder = makeIn(MEMORY)
    if (runsPrograms(folder)) return folder
    rmSync(folder, { recursive: true })
  }
  return makeIn(tmpdir())
}

function makeIn(parent: string): string {
  const folder = mkdtempSync(join(parent, "sluice-test-"))
  // Postgres runs as a user of its own, and must find its folder in it.
  chmodSync(folder, 0o755)
  return folder
}

function hasRoom(): boolean {
  try {
    const { bavail, bsize } = statfsSync(MEMORY)
    return Math.min(bavail * bsize, process.availableMemory()) > ENOUGH_BYTES
  } catch {
    return false
  }
}

/** In a container such folders are often for data only. */
function runsPrograms(folder: string): boolean {
  const program = join(folder, "program")
  writeFileSync(program, "#!/bin/sh\n", { mode: 0o700 })
  try {
    execFileSync(program)
    return true
  } catch {
    return false
  } finally {
    rmSync(program)
  }
}
