/** The pages under /docs: rendered once, at the first request, and then served from memory. */
import { hash } from "node:crypto"
import { readdirSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import swagger from "@fastify/swagger"
import swaggerUi from "@fastify/swagger-ui"
import Fastify, { type FastifyReply, type FastifyRequest } from "fastify"
import { ApiError } from "../errors.ts"
import type { Server } from "./server.ts"

interface Page {
  headers: Record<string, string>
  body: Buffer
}

const NOT_MODIFIED = 304
/** The headers of the plugin that are kept. */
const KEPT_HEADERS = ["content-type", "content-security-policy"]

/**
 * Adds `/docs`, its parts, and the document as `/docs/json` and `/docs/yaml`. `documentOf` is called once, and again if
 * the rendering failed. All answers share one copy of each page, and none opens a file: about 3 MB in all, whatever the
 * number of requests.
 */
export function docsPages(app: Server, documentOf: () => object): void {
  let rendered: Promise<Map<string, Page>> | undefined
  const send = async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    rendered ??= render(documentOf()).catch(error => {
      // The next request tries again.
      rendered = undefined
      throw error
    })
    const page = (await rendered).get(request.url.split("?", 1)[0] ?? "")
    if (!page) throw new ApiError("NOT_FOUND")
    reply.headers(page.headers)
    if (request.headers["if-none-match"] === page.headers.etag) return reply.code(NOT_MODIFIED).send()
    return reply.send(page.body)
  }
  for (const url of ["/docs", "/docs/*"]) app.get(url, { schema: { hide: true } }, send)
}

/** Renders every page with the plugin, on a server of its own that never listens. */
async function render(document: object): Promise<Map<string, Page>> {
  const app = Fastify()
  await app.register(swagger, { mode: "static", specification: { document: document as never } })
  await app.register(swaggerUi, {
    routePrefix: "/docs",
    staticCSP: true,
    // Without this, the page of a service reached by http would request its own parts by https.
    transformStaticCSP: policy => policy.replace(" upgrade-insecure-requests;", ""),
  })
  const folder = join(dirname(createRequire(import.meta.url).resolve("@fastify/swagger-ui")), "static")
  const files = [...readdirSync(folder), "swagger-initializer.js"].filter(name => /\.(css|js|png|svg)$/.test(name))
  const pages = new Map<string, Page>()
  for (const path of ["", "/", "/json", "/yaml", ...files.map(name => `/static/${name}`)]) {
    const url = `/docs${path}`
    const { headers, rawPayload } = await app.inject(url)
    const kept = KEPT_HEADERS.flatMap(name => (headers[name] === undefined ? [] : [[name, String(headers[name])]]))
    const etag = `"${hash("sha256", rawPayload, "base64url")}"`
    pages.set(url, { headers: { ...Object.fromEntries(kept), etag, "cache-control": "no-cache" }, body: rawPayload })
  }
  await app.close()
  return pages
}
