/**
 * The built console (`web/dist/console/current`): its files, kept in memory, and which of them its page loads. The
 * build is read again when it has changed, because `script/server` builds the console while a service is already
 * listening.
 */
// I/O: reads the files of the build when a page of the console is opened and the link to the build has changed.
import { readdir, readFile, realpath } from "node:fs/promises"
import { join } from "node:path"

interface BuiltFile {
  body: Buffer
  compressed: Buffer | undefined
  type: string
}

interface Manifest {
  script: string
  styles: string[]
  preload: string[]
}

/** One build. */
export interface BuiltConsole extends Manifest {
  files: ReadonlyMap<string, BuiltFile>
}

/** Returns the newest build; undefined until there is one. */
export type ReadConsole = () => Promise<BuiltConsole | undefined>

const BUILD = new URL("../../../../web/dist/console/current", import.meta.url).pathname
const types: Record<string, string> = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  woff2: "font/woff2",
}

/** Opens the builds at a path: a link to the newest build, or, in a package, the build itself. */
export function openBuilds(folder = BUILD): ReadConsole {
  let known: { path: string; built: Promise<BuiltConsole> } | undefined
  return async () => {
    const path = await realpath(folder).catch(() => undefined)
    if (path === undefined) return undefined
    if (known?.path !== path) known = { path, built: readBuild(path) }
    return await known.built.catch(() => {
      known = undefined
      return undefined
    })
  }
}

async function readBuild(path: string): Promise<BuiltConsole> {
  const { script, styles, preload }: Manifest = JSON.parse(await readFile(join(path, "manifest.json"), "utf8"))
  const names = new Set(await readdir(path))
  const files = new Map<string, BuiltFile>()
  for (const name of names) {
    const type = types[name.split(".").at(-1) ?? ""]
    if (type === undefined) continue
    const compressed = names.has(`${name}.br`) ? await readFile(join(path, `${name}.br`)) : undefined
    files.set(name, { body: await readFile(join(path, name)), compressed, type })
  }
  return { script, styles, preload, files }
}
