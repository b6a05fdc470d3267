/**
 * The built pages (`web/dist`): scripts and styles with a hash in their names. They are compressed at build time,
 * read once at the start of the process, and kept in memory.
 */
// I/O: reads the files of the build when the server is opened, and nothing afterwards.
import { hash } from "node:crypto"
import { existsSync, readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import type { FastifyReply, FastifyRequest } from "fastify"
import { ApiError } from "../../platform/errors.ts"
import type { Server } from "../../platform/http/server.ts"

interface Asset {
  body: Buffer
  compressed: Buffer | undefined
  type: string
  etag: string
}

/** The part of Vite's manifest that is read here. */
interface Chunk {
  file: string
  css?: string[]
  imports?: string[]
}

/** The files that a page loads, as paths on this server. */
export interface Entry {
  script: string
  styles: string[]
  preload: string[]
}

export interface Assets {
  /** The files of a page by its source, such as `src/pay/main.tsx`; undefined without a build. */
  entryOf(source: string, ...alsoLoaded: string[]): Entry | undefined
  /** The path of one built source; undefined without a build. */
  pathOf(source: string): string | undefined
  files: ReadonlyMap<string, Asset>
  /** The page that verifies receipts, exactly as it is sent; undefined without a build. */
  verifyPage: string | undefined
}

const types: Record<string, string> = {
  js: "text/javascript; charset=utf-8",
  css: "text/css; charset=utf-8",
  svg: "image/svg+xml",
}
const BUILD = new URL("../../../../web/dist/current/", import.meta.url).pathname
const NOT_MODIFIED = 304
const A_YEAR = "public, max-age=31536000, immutable"
const AN_HOUR = "public, max-age=3600"
/** The script for merchants' sites. */
const EMBED = "src/embed/embed.ts"

/** Reads the files of the newest build. Without a build there are no files, and the pages work without scripts. */
export function readAssets(folder = BUILD): Assets {
  const files = new Map<string, Asset>()
  const manifestFile = join(folder, "manifest.json")
  const manifest: Record<string, Chunk> = existsSync(manifestFile) ? JSON.parse(readFileSync(manifestFile, "utf8")) : {}
  const dir = join(folder, "assets")
  for (const name of existsSync(dir) ? readdirSync(dir) : []) {
    const type = types[name.split(".").at(-1) ?? ""]
    if (type === undefined) continue
    const body = readFileSync(join(dir, name))
    const br = join(dir, `${name}.br`)
    const compressed = existsSync(br) ? readFileSync(br) : undefined
    files.set(name, { body, compressed, type, etag: `"${hash("sha256", body, "base64url").slice(0, 22)}"` })
  }
  const pathOf = (source: string) => {
    const chunk = manifest[source]
    return chunk && `/${chunk.file}`
  }
  const verifyFile = join(folder, "verify.html")
  return {
    files,
    pathOf,
    verifyPage: existsSync(verifyFile) ? readFileSync(verifyFile, "utf8") : undefined,
    entryOf: (source, ...alsoLoaded) => {
      const chunk = manifest[source]
      if (!chunk) return undefined
      const more = [...(chunk.imports ?? []), ...alsoLoaded].flatMap(name => manifest[name] ?? [])
      return {
        script: `/${chunk.file}`,
        styles: [...new Set([chunk, ...more].flatMap(each => each.css ?? []))].map(name => `/${name}`),
        preload: more.map(each => `/${each.file}`),
      }
    },
  }
}

/**
 * Serves `/assets/*`, the files of the pages. Browsers cache them for a year, because a file that changes gets
 * another name.
 */
export function assetRoutes(app: Server, { files, pathOf }: Assets): void {
  app.get("/assets/:name", { schema: { hide: true } }, async (request, reply) => {
    const asset = files.get((request.params as { name: string }).name)
    if (!asset) throw new ApiError("NOT_FOUND")
    reply.headers({ "cache-control": A_YEAR, "cross-origin-resource-policy": "same-origin" })
    return sendAsset(request, reply, asset)
  })

  // Merchants' sites link to this file, so its name never changes.
  app.get("/embed.js", { schema: { hide: true } }, async (request, reply) => {
    const asset = files.get(pathOf(EMBED)?.slice("/assets/".length) ?? "")
    if (!asset) throw new ApiError("NOT_FOUND")
    reply.headers({ "cache-control": AN_HOUR, "cross-origin-resource-policy": "cross-origin" })
    return sendAsset(request, reply, asset)
  })
}

function sendAsset(request: FastifyRequest, reply: FastifyReply, asset: Asset): FastifyReply {
  reply.headers({ etag: asset.etag, vary: "accept-encoding", "x-content-type-options": "nosniff" })
  if (request.headers["if-none-match"] === asset.etag) return reply.code(NOT_MODIFIED).send()
  reply.type(asset.type)
  if (!asset.compressed || !acceptsBrotli(request.headers["accept-encoding"])) return reply.send(asset.body)
  return reply.header("content-encoding", "br").send(asset.compressed)
}

/** Whether a caller's `Accept-Encoding` accepts brotli. */
export const acceptsBrotli = (header: string | string[] | undefined): boolean =>
  /(^|[\s,])br(\s*;\s*q=(?!0(\.0*)?\s*(,|$))[\d.]+)?\s*(,|$)/.test(String(header ?? ""))
