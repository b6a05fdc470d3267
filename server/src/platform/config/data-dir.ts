// The data folder: used by one process at a time. A file in it is always either the old or the new version, never a
// mix.
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs"
import { open, rename, rm } from "node:fs/promises"
import { basename, dirname, join } from "node:path"
import { DatabaseSync } from "node:sqlite"

const TEMPORARY = /^\..+\.\d+-\d+\.tmp$/
const SQLITE_BUSY = 5

export const defaultDataDir = ".data"

/**
 * Reads only `DATA_DIR`, for a program that runs next to the service and needs none of its secrets. The function is in
 * this file because the code of the other settings loads viem. Starting `sluice wallet` took 0.35 s of CPU with these
 * settings, and takes 0.07 s without them.
 */
export const readDataDir = (env: Record<string, string | undefined> = process.env): string =>
  env.DATA_DIR || defaultDataDir

let written = 0

/**
 * The handles of the locks that this process holds. Garbage collection closes an unreferenced handle and so frees its
 * lock. Therefore a lock must not depend on its caller keeping the function that releases it.
 */
const held = new Set<DatabaseSync>()

/**
 * Creates the folder (mode 0700) if it is absent, and locks it for this process until the process ends or the returned
 * function is called. Throws an Error with code `DATA_DIR_BUSY` while another process holds it.
 */
export function lockDataDir(dir: string): () => void {
  mkdirSync(dir, { recursive: true, mode: 0o700 })
  // SQLite's lock is a kernel lock, so it ends with its process, however the process ends. A pid file would remain, and
  // Node has no flock of its own.
  const lock = new DatabaseSync(join(dir, "lock"))
  try {
    lock.exec("PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE")
  } catch (error) {
    lock.close()
    if ((error as { errcode?: number }).errcode !== SQLITE_BUSY) throw error
    const text = `The folder ${dir} is in use by another running Sluice. Stop that one, or set DATA_DIR to another folder.`
    throw Object.assign(new Error(text), { code: "DATA_DIR_BUSY" })
  }
  held.add(lock)
  removeTemporaryFiles(dir)
  return () => {
    if (held.delete(lock)) lock.close()
  }
}

/**
 * Removes the files that `writeFileAtomic` left in a folder when its process was killed. Call it only for a folder that
 * nobody writes to.
 */
export function removeTemporaryFiles(dir: string): void {
  for (const name of readdirSync(dir)) if (TEMPORARY.test(name)) rmSync(join(dir, name), { force: true })
}

/**
 * Replaces a file in one step; it is on disk when the promise resolves. `mode` is its permissions (0o600 for secrets).
 */
export async function writeFileAtomic(path: string, content: string | Uint8Array, mode: number): Promise<void> {
  const folder = dirname(path)
  written += 1
  const temporary = join(folder, `.${basename(path)}.${process.pid}-${written}.tmp`)
  try {
    const file = await open(temporary, "wx", mode)
    try {
      await file.chmod(mode) // The umask removed permission bits.
      await file.writeFile(content)
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(temporary, path)
  } catch (error) {
    await rm(temporary, { force: true })
    throw error
  }
  // The rename changes the folder, and that change must reach the disk too.
  const entry = await open(folder, "r")
  try {
    await entry.sync()
  } finally {
    await entry.close()
  }
}

/** Reads a JSON file; undefined if it does not exist. Throws if a file is not JSON. */
export function readJsonIfThere(path: string): unknown {
  let text: string
  try {
    text = readFileSync(path, "utf8")
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined
    throw error
  }
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new Error(`${path} is not JSON`, { cause })
  }
}
