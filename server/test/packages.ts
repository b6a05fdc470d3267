/** Packages of a folder with a lockfile of its own, which only some tests need. */
import { execFile } from "node:child_process"
import { copyFileSync, existsSync, readFileSync, rmSync } from "node:fs"
import { join } from "node:path"
import { promisify } from "node:util"
import { root } from "./e2e/program.ts"

/**
 * Installs what the lockfile of a folder of the clone names, unless that is there already; returns the folder. Not by `npm ci`: it refuses
 * a lockfile that lacks other platforms' optional packages, and a registry need not hold all of them.
 */
export async function installPackages(path: string): Promise<string> {
  const folder = join(root, path)
  const lock = join(folder, "package-lock.json")
  const stamp = join(folder, "node_modules/.sluice-lock")
  if (existsSync(stamp) && readFileSync(stamp, "utf8") === readFileSync(lock, "utf8")) return folder
  rmSync(stamp, { force: true })
  const flags = ["--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
  await promisify(execFile)("npm", ["install", ...flags], { cwd: folder, env: nodeFirst() })
  copyFileSync(lock, stamp)
  return folder
}

/** The environment of npm and its programs: they run on the Node of this project, as a system's may be too old for them. */
export function nodeFirst(): NodeJS.ProcessEnv {
  const { NODE_OPTIONS: _, ...env } = process.env
  return { ...env, PATH: `${join(root, "node_modules/.bin")}:${env.PATH}` }
}
