/**
 * The built documents (`web/dist/docs/current`), as files by their paths below `/docs`. The documents are looked up
 * again when the build has changed, because `script/server` builds them while the service already listens.
 */
// I/O: lists the build's files once, and reads a file at each request, because all of them take about 10 MB.
import { hash } from "node:crypto"
import { readdir, readFile, realpath } from "node:fs/promises"
import { extname, join } from "node:path"

/** A file of the site, with its headers. */
export interface SiteFile {
  headers: Record<string, string>
  /** Reads the file, compressed if the caller accepts Brotli and the build has such a copy. */
  read(takesBrotli: boolean): Promise<{ body: Buffer; encoding?: "br" }>
}

/**
 * Returns the file at a path of the site such as `/docs/merchants/escrow/`; undefined if there is no such file, or no
 * build.
 */
export type ReadSite = (path: string) => Promise<SiteFile | undefined>

const BUILD = new URL("../../../../web/dist/docs/current", import.meta.url).pathname
const types: Record<string, string> = {
  ".html": "text/html; charset=utf-8",
  ".js": "text/javascript; charset=utf-8",
  ".css": "text/css; charset=utf-8",
  ".json": "application/json; charset=utf-8",
  ".md": "text/markdown; charset=utf-8",
  ".txt": "text/plain; charset=utf-8",
  ".woff2": "font/woff2",
  ".png": "image/png",
  ".webp": "image/webp",
  ".xml": "application/atom+xml; charset=utf-8",
  ".svg": "image/svg+xml",
}
/**
 * Allows nothing inline and nothing from other origins. The site's search is WebAssembly, which needs a keyword of its
 * own.
 */
const POLICY =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

/** Opens the site in a folder: a link to the current build or, in a package, the build itself. */
export function openSite(folder = BUILD): ReadSite {
  let known: { path: string; names: Promise<ReadonlySet<string>> } | undefined
  return async path => {
    const build = await realpath(folder).catch(() => undefined)
    if (build === undefined) return undefined
    if (known?.path !== build) known = { path: build, names: namesIn(build) }
    const names = await known.names.catch((): ReadonlySet<string> => new Set())
    const name = nameOf(path)
    return names.has(name) ? fileOf(build, name, names.has(`${name}.br`)) : undefined
  }
}

async function namesIn(build: string): Promise<ReadonlySet<string>> {
  const entries = await readdir(build, { recursive: true, withFileTypes: true })
  return new Set(
    entries
      .filter(entry => entry.isFile())
      .map(({ parentPath, name }) => join(parentPath, name).slice(build.length + 1)),
  )
}

/** The name of the file at a path; for a folder, the name of its index. */
function nameOf(path: string): string {
  const name = path.replace(/^\/docs\/?/, "")
  return name === "" || name.endsWith("/") ? `${name}index.html` : name
}

function fileOf(build: string, name: string, hasSmall: boolean): SiteFile {
  const isHashed = name.startsWith("_astro/")
  return {
    headers: {
      "content-type": types[extname(name)] ?? "application/octet-stream",
      "content-security-policy": POLICY,
      "x-content-type-options": "nosniff",
      "referrer-policy": "no-referrer",
      vary: "accept-encoding",
      // A build's folder is named after the hash of its sources.
      etag: `"${hash("sha256", `${build}/${name}`, "base64url")}"`,
      "cache-control": isHashed ? "public, max-age=31536000, immutable" : "no-cache",
    },
    read: async takesBrotli =>
      takesBrotli && hasSmall
        ? { body: await readFile(join(build, `${name}.br`)), encoding: "br" }
        : { body: await readFile(join(build, name)) },
  }
}
