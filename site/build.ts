/**
 * Builds the site into `web/dist/docs/<hash of the sources>`, unless that exists, and points `current` to it. Installs the site's own
 * packages first where the lockfile changed. The folder can be copied to any host, as `/docs`. Several processes may run it.
 */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, globSync, readFileSync, renameSync, rmSync } from "node:fs"
import { join } from "node:path"
import { installOnce, lockBuild, pointTo } from "../web/built-once.ts"
import { tighten } from "./tighten.ts"

const here = import.meta.dirname
const root = join(here, "..")
const dist = join(root, "web/dist/docs")

/** The hash of everything that the build depends on. */
function stampOf(): string {
  const hash = createHash("sha256")
  const ours = globSync(["*.{ts,json}", "src/*.ts", "src/styles/*.css"], { cwd: here }).map(name => join(here, name))
  const documents = globSync("**/*.{md,json,png,webp}", { cwd: join(root, "docs") }).map(name =>
    join(root, "docs", name),
  )
  for (const path of [...ours, ...documents].sort())
    hash.update(`${path.slice(root.length)}\0`).update(readFileSync(path))
  return hash.digest("hex").slice(0, 16)
}

function install(): void {
  process.stderr.write("Installing the site's packages ...\n")
  run("npm", ["install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error"])
}

/** Without what a test's process sets: Astro would take it for settings of its own, and build for development. */
const { DEV: _dev, PROD: _prod, MODE: _mode, SSR: _ssr, BASE_URL: _base, VITEST: _vitest, ...environment } = process.env

function run(command: string, args: readonly string[]): void {
  const { status, stdout, stderr } = spawnSync(command, args, {
    cwd: here,
    encoding: "utf8",
    env: { ...environment, ASTRO_TELEMETRY_DISABLED: "1", NODE_ENV: "production" },
  })
  if (status !== 0) throw new Error(`${command} ${args.join(" ")} failed in site/:\n${stdout}${stderr}`)
}

async function build(target: string): Promise<void> {
  process.stderr.write("Building the documents' site ...\n")
  const scratch = join(dist, `.unfinished-${process.pid}`)
  const { stage } = await import("./stage.ts")
  stage()
  run(process.execPath, ["node_modules/astro/bin/astro.mjs", "build", "--outDir", scratch])
  tighten(scratch)
  rmSync(target, { recursive: true, force: true })
  renameSync(scratch, target)
}

const stamp = stampOf()
const target = join(dist, stamp)
const unlock = await lockBuild(dist)
try {
  if (!existsSync(target)) {
    installOnce(here, install)
    await build(target)
  }
  pointTo(dist, stamp)
} finally {
  unlock()
}
