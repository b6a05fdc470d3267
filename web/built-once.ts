/** What the builds of the console and of the site share: each is made once for its sources, though many processes may ask for it. */
import {
  copyFileSync,
  existsSync,
  linkSync,
  mkdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { join } from "node:path"

/** Waits until no other living process builds in this folder, or installs for it; returns what lets the next one in. */
export async function lockBuild(dist: string): Promise<() => void> {
  mkdirSync(dist, { recursive: true })
  const file = join(dist, ".building")
  const own = `${file}-${process.pid}`
  writeFileSync(own, nameOf(process.pid))
  try {
    for (;;)
      try {
        // A link is made with what the file says, so nobody reads it half written.
        linkSync(own, file)
        return () => rmSync(file, { force: true })
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error
        if (isAlive(file)) await new Promise(resolve => setTimeout(resolve, 200))
        else rmSync(file, { force: true })
      }
  } finally {
    rmSync(own, { force: true })
  }
}

/**
 * The id of a process with the time of its start, where the system tells it: after a restart, or in a copy of the folder on another
 * machine, a stranger may have the id of a builder that was killed, and nobody would build again.
 */
function nameOf(pid: number): string {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8")
    // The name of the program, in parentheses, may have spaces; the 20th field after it is the start in ticks since the boot (proc(5)).
    return `${pid} ${stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]}`
  } catch {
    return `${pid}`
  }
}

function isAlive(file: string): boolean {
  try {
    const holder = readFileSync(file, "utf8")
    const pid = Number.parseInt(holder, 10)
    process.kill(pid, 0)
    return nameOf(pid) === holder
  } catch {
    return false
  }
}

/** Runs `install` where the lockfile of this folder is not what was installed last. Not `npm ci`, for the reason that `script/install` gives. */
export function installOnce(folder: string, install: () => void): void {
  const lockfile = join(folder, "package-lock.json")
  const installed = join(folder, "node_modules/.sluice-lock")
  if (existsSync(installed) && readFileSync(installed, "utf8") === readFileSync(lockfile, "utf8")) return
  install()
  copyFileSync(lockfile, installed)
}

/** Points `current` to the build. Replacing a link is atomic, so a server that reads meanwhile reads the old build or the new one. */
export function pointTo(dist: string, stamp: string): void {
  const fresh = join(dist, `.link-${process.pid}`)
  rmSync(fresh, { force: true })
  symlinkSync(stamp, fresh)
  renameSync(fresh, join(dist, "current"))
}
