/**
 * Builds the console into `web/dist/console/<hash of the sources>`, unless that exists, and points `current` to it. Installs the
 * console's own packages first where the lockfile changed. `--install` does that alone, for the types. Several processes may run it.
 */
import { spawnSync } from "node:child_process"
import { createHash } from "node:crypto"
import { existsSync, globSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs"
import { basename, join } from "node:path"
import { brotliCompressSync, constants } from "node:zlib"
import { installOnce, lockBuild, pointTo } from "../../built-once.ts"

const here = import.meta.dirname
const dist = join(here, "../../dist/console")
const entry = "main.tsx"

/** What a page of the console loads, in `manifest.json` beside the files: names, and bytes as they are sent. */
export interface ConsoleManifest {
  script: string
  styles: string[]
  /** What the script imports at once. */
  preload: string[]
  /** All files, with the files that each imports at once. */
  files: Record<string, { bytes: number; imports: string[]; entry?: string }>
  /** The folders of the packages that are in these files. */
  packages: string[]
}

/** The hash of everything that the build depends on. */
function stampOf(): string {
  const hash = createHash("sha256")
  const names = globSync("**/*.{ts,tsx,css,json}", { cwd: here, exclude: name => name === "node_modules" }).sort()
  for (const name of names) hash.update(`${name}\0`).update(readFileSync(join(here, name)))
  for (const name of ["tokens.css", "dot.ts"]) {
    const shared = join(here, "../ui", name)
    if (existsSync(shared)) hash.update(readFileSync(shared))
  }
  return hash.digest("hex").slice(0, 16)
}

function install(): void {
  process.stderr.write("Installing the console's packages ...\n")
  const flags = ["--no-save", "--no-audit", "--no-fund", "--loglevel=error"]
  const { status } = spawnSync("npm", ["install", ...flags], { cwd: here, stdio: ["ignore", 2, 2] })
  if (status !== 0) throw new Error("npm could not install the console's packages (web/src/console)")
}

async function build(target: string): Promise<void> {
  process.stderr.write("Building the console ...\n")
  const scratch = join(dist, `.unfinished-${process.pid}`)
  const { build } = await import("esbuild")
  const plugins = [await mantineByPart()]
  const { metafile } = await build({
    absWorkingDir: here,
    entryPoints: [entry],
    outdir: scratch,
    bundle: true,
    splitting: true,
    format: "esm",
    minify: true,
    metafile: true,
    target: ["chrome120", "firefox120", "safari16.4"],
    jsx: "automatic",
    entryNames: "[name]-[hash]",
    chunkNames: "[name]-[hash]",
    assetNames: "[name]-[hash]",
    publicPath: "/console/assets/",
    loader: { ".woff2": "file" },
    legalComments: "none",
    plugins,
    define: { "process.env.NODE_ENV": '"production"' },
    logLevel: "warning",
  })
  writeFileSync(
    join(scratch, "manifest.json"),
    JSON.stringify({ ...manifestOf(metafile.outputs, scratch), packages: packagesIn(Object.keys(metafile.inputs)) }),
  )
  rmSync(target, { recursive: true, force: true })
  renameSync(scratch, target)
}

const DEEP = /import \{([^}]*)\} from "@mantine\/core"/g

/**
 * Imports each part of Mantine from its own file. Through the package's index, which every page imports, esbuild puts whatever one page
 * uses into the chunk that all load at first (measured: 184 KB in place of 140).
 */
async function mantineByPart(): Promise<import("esbuild").Plugin> {
  const folder = join(here, "node_modules/@mantine/core/esm")
  const files = new Map<string, { name: string; file: string }>()
  for (const [, list = "", file = ""] of readFileSync(join(folder, "index.mjs"), "utf8").matchAll(
    /import \{([^}]*)\} from "([^"]+)"/g,
  ))
    for (const each of list.split(",")) {
      const [name = "", alias = name] = each.trim().split(/ as /)
      files.set(alias, { name, file: file.startsWith(".") ? join(folder, file) : file })
    }
  const partOf = (each: string): string => {
    const [name = "", alias = name] = each.trim().split(/ as /)
    const part = files.get(name)
    if (each.trim() === "" || name.startsWith("type ")) return ""
    if (!part) throw new Error(`@mantine/core has no ${name}`)
    return `import { ${part.name} as ${alias} } from ${JSON.stringify(part.file)}`
  }
  return {
    name: "mantine-by-part",
    setup: ({ onLoad }) => {
      onLoad(
        { filter: /(web\/src\/console\/[^@]*\.tsx?|@mantine\/(spotlight|notifications)\/esm\/.*\.mjs)$/ },
        ({ path }) => {
          if (path.includes("node_modules") && !path.includes("@mantine")) return undefined
          const contents = readFileSync(path, "utf8").replace(DEEP, (_, list: string) =>
            list.split(",").map(partOf).join(";"),
          )
          return { contents, loader: path.endsWith(".tsx") ? "tsx" : path.endsWith(".ts") ? "ts" : "js" }
        },
      )
    },
  }
}

type Outputs = Record<string, { entryPoint?: string; cssBundle?: string; imports: { path: string; kind: string }[] }>

const packagesIn = (modules: string[]): string[] =>
  [...new Set(modules.flatMap(path => /^.*node_modules\/(?:@[^/]+\/)?[^/]+/.exec(path)?.[0] ?? []))].sort()

function manifestOf(outputs: Outputs, folder: string): Omit<ConsoleManifest, "packages"> {
  const files: ConsoleManifest["files"] = {}
  const sizes = new Map(readdirSync(folder).map(name => [name, compress(join(folder, name))]))
  for (const [path, { imports, entryPoint }] of Object.entries(outputs))
    files[basename(path)] = {
      bytes: sizes.get(basename(path)) ?? 0,
      imports: imports.filter(({ kind }) => kind === "import-statement").map(({ path }) => basename(path)),
      ...(entryPoint ? { entry: entryPoint } : {}),
    }
  const [script = "", main] = Object.entries(outputs).find(([, { entryPoint }]) => entryPoint === entry) ?? []
  const preload = new Set<string>()
  const visit = (name: string): void => {
    for (const each of files[name]?.imports ?? [])
      if (!preload.has(each)) {
        preload.add(each)
        visit(each)
      }
  }
  visit(basename(script))
  return {
    script: basename(script),
    styles: main?.cssBundle ? [basename(main.cssBundle)] : [],
    preload: [...preload],
    files,
  }
}

/** Writes the compressed copy beside a file; answers the bytes that are sent. A font is compressed already. */
function compress(path: string): number {
  const body = readFileSync(path)
  if (!/\.(js|css)$/.test(path)) return body.length
  const compressed = brotliCompressSync(body, { params: { [constants.BROTLI_PARAM_QUALITY]: 11 } })
  writeFileSync(`${path}.br`, compressed)
  return compressed.length
}

const stamp = stampOf()
const target = join(dist, stamp)
const onlyInstall = process.argv.includes("--install")
const unlock = await lockBuild(dist)
try {
  if (onlyInstall || !existsSync(target)) installOnce(here, install)
  if (!onlyInstall) {
    if (!existsSync(target)) await build(target)
    pointTo(dist, stamp)
  }
} finally {
  unlock()
}
