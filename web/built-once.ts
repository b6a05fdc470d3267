/** What the builds of the console and of the site share: each is made once for its sources, though many processes may ask for it. */
import {
  copyFileSync,
  existsSync,
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
  for (;;) {
    try {
      writeFileSync(file, `${process.pid}`, { flag: "wx" })
      return () => rmSync(file, { force: true })
    } catch {
      if (isAlive(file)) await new Promise(resolve => setTimeout(resolve, 200))
      else rmSync(file, { force: true })
    }
  }
}

function isAlive(file: string): boolean {
  try {
    process.kill(Number(readFileSync(file, "utf8")), 0)
    return true
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
