/**
 * The pages under /docs: the documents' site, once it is built, and three pages about this version's API: one to try
 * it, its document, and its errors. These three are rendered once, at their first request, and then served from memory.
 */
import { hash } from "node:crypto"
import { readdirSync } from "node:fs"
import { createRequire } from "node:module"
import { dirname, join } from "node:path"
import swagger from "@fastify/swagger"
import Fastify, { type FastifyReply, type FastifyRequest } from "fastify"
import { ApiError, type ErrorCode, errorTable } from "../errors.ts"
import { openSite, type ReadSite, type SiteFile } from "./built-site.ts"
import type { Server } from "./server.ts"

interface Page {
  headers: Record<string, string>
  body: Buffer
}

const TITLE = "Sluice API"
/** As on all pages: nothing from other origins, and nothing inline. */
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
const NOT_MODIFIED = 304
/** The page for trying the API. */
const TRY = "/docs/try"
/** The errors on the site. An error links to `/docs/errors#CODE`, and browsers keep the code across a redirect. */
const ERRORS = "/docs/developers/errors/"
/** An empty icon. The plugin's own icon is its maker's logo, and without an icon browsers ask for `/favicon.ico`. */
const NO_ICON = '<link rel="icon" href="data:,">'

/**
 * Adds `/docs`: the site, or the page to try the API while there is no site. Adds that page as `/docs/try`, the
 * document as `/docs/json` and `/docs/yaml`, and the list of errors as `/docs/errors`. `documentOf` is called once, and
 * again if the rendering failed. All answers share one copy of each page: about 3 MB in all. Each page is rendered when
 * first requested, because the YAML takes two thirds of the time, and few callers request it.
 */
export function docsPages(app: Server, documentOf: () => object, readSite: ReadSite = openSite()): void {
  let opened: Promise<Renderer> | undefined
  const send = async (request: FastifyRequest, reply: FastifyReply): Promise<unknown> => {
    const path = request.url.split("?", 1)[0] ?? ""
    if (path === "/docs/errors" && (await readSite(ERRORS))) return reply.redirect(ERRORS)
    const file = await readSite(path)
    if (file) return await sendFile(request, reply, file)
    if (await readSite(`${path}/`)) return reply.redirect(`${path}/`)
    opened ??= openRenderer(documentOf()).catch(error => {
      // The next request will try again.
      opened = undefined
      throw error
    })
    const page = await (await opened)(path)
    if (!page) throw new ApiError("NOT_FOUND")
    reply.headers(page.headers)
    if (request.headers["if-none-match"] === page.headers.etag) return reply.code(NOT_MODIFIED).send()
    return reply.send(page.body)
  }
  for (const url of ["/docs", "/docs/*"]) app.get(url, { schema: { hide: true } }, send)
}

async function sendFile(request: FastifyRequest, reply: FastifyReply, file: SiteFile): Promise<unknown> {
  reply.headers(file.headers)
  if (request.headers["if-none-match"] === file.headers.etag) return reply.code(NOT_MODIFIED).send()
  const { body, encoding } = await file.read(/\bbr\b/.test(String(request.headers["accept-encoding"])))
  return (encoding ? reply.header("content-encoding", encoding) : reply).send(body)
}

/** Returns the page at a path; undefined if there is none. */
type Renderer = (url: string) => Promise<Page | undefined>

/** Starts the plugin, on a server of its own that never listens. */
async function openRenderer(document: object): Promise<Renderer> {
  const { default: swaggerUi } = await import("@fastify/swagger-ui")
  const app = Fastify()
  await app.register(swagger, { mode: "static", specification: { document: document as never } })
  await app.register(swaggerUi, {
    routePrefix: "/docs",
    theme: { title: TITLE, favicon: [] },
    // Without the plugin's bar, which has its maker's logo and a field for the URL of another document. Each operation
    // has an address, to which the reference links, and its request can be sent without another step.
    uiConfig: { layout: "BaseLayout", deepLinking: true, tryItOutEnabled: true, docExpansion: "none" },
  })
  const folder = join(dirname(createRequire(import.meta.url).resolve("@fastify/swagger-ui")), "static")
  const files = [...readdirSync(folder), "swagger-initializer.js"].filter(name => /\.(css|js)$/.test(name))
  // The page asks for its document below its own path.
  const urls = ["", "/", "/try", "/try/json", "/json", "/yaml", "/errors", ...files.map(name => `/static/${name}`)].map(
    path => `/docs${path}`,
  )
  const render = async (url: string): Promise<Page> => {
    if (url === "/docs/errors") return pageOf("text/html; charset=utf-8", Buffer.from(errorsPage()))
    const { headers, rawPayload, payload } = await app.inject(url === TRY ? "/docs" : url.replace(`${TRY}/`, "/docs/"))
    const isPage = ["/docs", "/docs/", TRY].includes(url)
    const body = isPage ? Buffer.from(payload.replace("</head>", `${NO_ICON}</head>`)) : rawPayload
    return pageOf(String(headers["content-type"]), body)
  }
  const pages = new Map<string, Promise<Page>>()
  return async url => {
    if (!urls.includes(url)) return undefined
    const page = pages.get(url) ?? render(url)
    pages.set(url, page)
    return await page.catch(error => {
      pages.delete(url)
      throw error
    })
  }
}

function pageOf(type: string, body: Buffer): Page {
  const etag = `"${hash("sha256", body, "base64url")}"`
  return {
    headers: { "content-type": type, "content-security-policy": POLICY, etag, "cache-control": "no-cache" },
    body,
  }
}

/** Every error with its status and what to do about it, in the style of the plugin's page. */
function errorsPage(): string {
  const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" }
  const words = (text: string) =>
    text.replace(/[&<>"]/g, letter => escapes[letter] ?? letter).replace(/`([^`]+)`/g, "<code>$1</code>")
  const codes = Object.keys(errorTable) as ErrorCode[]
  const sections = codes.map(code => {
    const { status, message, help } = errorTable[code]
    return `<h2 id="${code}">${code}</h2><p><strong>${status}</strong> ${words(message)}</p><p>${words(help)}</p>`
  })
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Errors · ${TITLE}</title>${NO_ICON}
<link rel="stylesheet" href="/docs/static/swagger-ui.css"><link rel="stylesheet" href="/docs/static/index.css"></head>
<body class="swagger-ui"><main class="wrapper"><div class="info"><h1 class="title">Errors</h1>
<p>Every error is <code>{ error, message, requestId, details? }</code>. <code>error</code> is for programs and never
changes; <code>message</code> is for people and can change. <a href="/docs">The API</a> says which routes answer which error.</p>
${sections.join("\n")}
</div></main></body></html>
`
}
