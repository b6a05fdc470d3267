/**
 * Builds the payers' pages into `dist/<hash of the sources>`, unless that exists, and points `dist/current` to it. Several
 * processes may do so at once: each builds in a folder of its own and renames it.
 */
import { createHash } from "node:crypto"
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs"
import { join } from "node:path"
import { brotliCompressSync, constants } from "node:zlib"

const here = import.meta.dirname
const dist = join(here, "dist")
const verify = join(here, "../verify")

/** The hash of everything that the build depends on. */
function stampOf(): string {
  const stamp = createHash("sha256")
  // The console has packages and a build of its own.
  const folders = readdirSync(join(here, "src")).filter(name => name !== "console")
  const sources = folders
    .flatMap(name =>
      name.includes(".")
        ? [name]
        : readdirSync(join(here, "src", name), { recursive: true, encoding: "utf8" }).map(each => `${name}/${each}`),
    )
    .sort()
  const files = ["build.ts", "vite.config.ts", "package.json", "tsconfig.json", ...sources.map(name => `src/${name}`)]
  for (const name of files.filter(each => /\.\w+$/.test(each)))
    stamp.update(`${name}\0`).update(readFileSync(join(here, name)))
  // The page that verifies receipts is a package of its own, and is served beside these.
  for (const name of [
    "build.ts",
    ...readdirSync(join(verify, "src"), { encoding: "utf8" }).map(each => `src/${each}`),
  ].sort())
    stamp.update(`${name}\0`).update(readFileSync(join(verify, name)))
  return stamp.digest("hex").slice(0, 16)
}

const stamp = stampOf()
const target = join(dist, stamp)
if (!existsSync(target)) await build()
point()

async function build(): Promise<void> {
  process.stderr.write("Building the pages ...\n")
  const scratch = join(dist, `.unfinished-${process.pid}`)
  mkdirSync(dist, { recursive: true })
  const { build: viteBuild } = await import("vite")
  await viteBuild({ configFile: join(here, "vite.config.ts"), build: { outDir: scratch, emptyOutDir: true } })
  const assets = join(scratch, "assets")
  for (const name of readdirSync(assets)) {
    const params = { [constants.BROTLI_PARAM_QUALITY]: 11 }
    writeFileSync(join(assets, `${name}.br`), brotliCompressSync(readFileSync(join(assets, name)), { params }))
  }
  const { buildPage } = await import("../verify/build.ts")
  writeFileSync(join(scratch, "verify.html"), await buildPage())
  try {
    renameSync(scratch, target)
  } catch (error) {
    // Another process was faster.
    rmSync(scratch, { recursive: true, force: true })
    if (!existsSync(target)) throw error
  }
}

/** Replacing a link is atomic, so a server that starts meanwhile reads the old build or the new one. */
function point(): void {
  const link = join(dist, "current")
  const fresh = join(dist, `.link-${process.pid}`)
  rmSync(fresh, { force: true })
  symlinkSync(stamp, fresh)
  renameSync(fresh, link)
}
