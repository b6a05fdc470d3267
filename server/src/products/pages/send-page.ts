/** Sends a page with its language, its policy and its errors. */
import { brotliCompressSync, constants } from "node:zlib"
import type { FastifyReply, FastifyRequest } from "fastify"
import { catalogues } from "../../../../web/src/i18n/all.ts"
import { type Language, languageOf } from "../../../../web/src/i18n/languages.ts"
import { type Translate, translator } from "../../../../web/src/i18n/words.ts"
import type { PageBase } from "../../../../web/src/page-data.ts"
import type { Context } from "../../platform/context.ts"
import { ApiError, type ErrorCode, errorTable } from "../../platform/errors.ts"
import type { ErrorPage } from "../../platform/http/error-page.ts"
import { accentStyle } from "./accent.ts"
import { type Assets, acceptsBrotli } from "./assets.ts"
import { languageLinks } from "./bodies.ts"
import { contentPolicy, documentOf, type Html, html } from "./html.ts"

/** A page before it becomes a document. */
export interface Page {
  title: string
  body: Html
  /** The facts of the merchant; undefined if the page belongs to no merchant. */
  base?: PageBase
  /** Whether sites that the merchant allows may show the page in a frame. */
  framed?: boolean
  data?: object
}

/** Sends the page that `make` returns, or the error page for what `make` throws. */
export type SendPage = (
  request: FastifyRequest,
  reply: FastifyReply,
  make: (t: Translate, lang: Language) => Promise<Page>,
) => Promise<unknown>

const PAY = "src/pay/main.tsx"

/** Sends pages in the visitor's language. */
export function pageSender(ctx: Context, assets: Assets): SendPage {
  return async (request, reply, make) => {
    const lang = languageFor(request)
    const t = translator(catalogues[lang])
    const page = await make(t, lang).catch(error => {
      const code = error instanceof ApiError ? error.code : "INTERNAL_ERROR"
      const { status } = errorTable[code]
      if (status >= 500) ctx.log.error({ err: error, requestId: request.id }, "a page failed")
      reply.code(status)
      return errorPage(t, code, lang)
    })
    return reply.send(documentFor(request, reply, assets, { lang, ...page }))
  }
}

/** Sends a page with the error to a browser that opens a URL without a page. Other clients get JSON, as everywhere. */
export const browserErrors =
  (assets: Assets): ErrorPage =>
  (request, reply, code) => {
    const { method, url, headers } = request
    const isBrowser = (method === "GET" || method === "HEAD") && /\btext\/html\b/.test(headers.accept ?? "")
    if (!isBrowser || url.startsWith("/api/") || !shownToBrowsers.includes(code)) return undefined
    const lang = languageFor(request)
    // A URL that can't be parsed gets the same answer as an unknown one.
    if (code === "VALIDATION_ERROR") reply.code(errorTable.NOT_FOUND.status)
    return documentFor(request, reply, assets, { lang, ...errorPage(translator(catalogues[lang]), code, lang) })
  }

/** The errors that a person who follows a link can see. */
const shownToBrowsers: ErrorCode[] = ["NOT_FOUND", "VALIDATION_ERROR", "RATE_LIMITED"]

function languageFor(request: FastifyRequest): Language {
  // The raw URL is read, because a URL that can't be decoded has no parsed query, but its error page needs a
  // language.
  const [, lang] = /[?&]lang=(\w+)/.exec(request.url) ?? []
  return languageOf(lang, request.headers["accept-language"])
}

/** The whole document with its headers, compressed if the browser accepts that. */
function documentFor(
  request: FastifyRequest,
  reply: FastifyReply,
  assets: Assets,
  { base, framed, lang, ...page }: Page & { lang: Language },
): string | Buffer {
  const entry = assets.entryOf(PAY, `src/i18n/${lang}.ts`)
  const frames = framed ? (base?.brand.allowedOrigins ?? []) : []
  const style = accentStyle(base?.brand.accentColor ?? null)
  const text = documentOf({ lang, entry, style, framed: frames.length > 0, ...page })
  reply.type("text/html; charset=utf-8")
  reply.headers({
    // Otherwise, Back could show a cached page with the amount and address of a paid checkout.
    "cache-control": "no-store",
    vary: "accept, accept-encoding, accept-language",
    "content-security-policy": contentPolicy({ style, frames }),
    "x-content-type-options": "nosniff",
    // A page's URL is the only secret needed to open it, so it is not sent to other sites.
    "referrer-policy": "no-referrer",
  })
  if (!acceptsBrotli(request.headers["accept-encoding"])) return text
  reply.header("content-encoding", "br")
  return brotliCompressSync(text, { params: { [constants.BROTLI_PARAM_QUALITY]: 4 } })
}

/**
 * The page for an error. Unknown ids and paths are not found, callers with too many requests must wait, and
 * everything else is the service's fault.
 */
function errorPage(t: Translate, code: ErrorCode, lang: Language): Page {
  const isMissing = code !== "RATE_LIMITED" && errorTable[code].status < 500
  const title = t(isMissing ? "notFound" : "serverFailed")
  const words = t(isMissing ? "notFoundWords" : code === "RATE_LIMITED" ? "busy" : "serverFailedWords")
  return {
    title,
    body: html`<main id="app" class="page"><div class="card center"><h1 class="state">${title}</h1><p>${words}</p></div>${languageLinks(t, lang)}</main>`,
  }
}
