/** `/console`: sign-in, the return from the identity provider, and the built console for signed-in people. */
import { randomBytes } from "node:crypto"
import type { FastifyReply, FastifyRequest } from "fastify"
import { beginSignIn, signInCookie } from "../../account/sessions/begin-sign-in.ts"
import { placeOf, returnPath } from "../../account/sessions/console-place.ts"
import { finishSignIn } from "../../account/sessions/finish-sign-in.ts"
import { giveCookie, sessionOf } from "../../account/sessions/open-sessions.ts"
import { merchantNameOf } from "../../account/sessions/queries.ts"
import { consoleConfig } from "../../account/sessions/read-config.ts"
import { endOf } from "../../account/sessions/session.ts"
import { readMe } from "../../account/team/read-me.ts"
import type { Context } from "../../platform/context.ts"
import type { Row } from "../../platform/db/schema.ts"
import { ApiError, errorTable } from "../../platform/errors.ts"
import { type Server, toApiError } from "../../platform/http/server.ts"
import { type Assets, acceptsBrotli } from "../pages/assets.ts"
import { answerDeviceForm, codePage, formFields } from "./answer-device-form.ts"
import { appDocument, CONSOLE_FILES } from "./app-document.ts"
import { openBuilds, type ReadConsole } from "./built-console.ts"
import {
  type ConsolePage,
  consoleDocument,
  consoleHeaders,
  signedInBody,
  signInBody,
  wordsBody,
} from "./console-page.ts"

const schema = { hide: true }
const AGAIN = { href: "/console", words: "Back to the sign-in" }
/** The file of the console's typeface, which its plain pages have too. */
const FONT = /^geist-latin-wght-normal-.*\.woff2$/
const ways = { provider: "the identity provider", wallet: "a wallet", sandbox: "the sandbox's button" }

export function consoleRoutes(
  app: Server,
  ctx: Context,
  assets: Assets,
  readConsole: ReadConsole = openBuilds(),
): void {
  const entry = assets.entryOf("src/sign-in/sign-in.ts")
  const send = async (reply: FastifyReply, page: ConsolePage) => {
    const nonce = randomBytes(16).toString("base64url")
    const font = [...((await readConsole())?.files.keys() ?? [])].find(name => FONT.test(name))
    const document = consoleDocument(page, entry, nonce, font && `${CONSOLE_FILES}${font}`)
    return reply.headers(consoleHeaders(nonce)).send(document)
  }
  app.register(async routes => {
    routes.addHook("onRequest", async (request, reply) => {
      const place = placeOf(ctx.settings, request.headers.host)
      if (place === "elsewhere") throw new ApiError("NOT_FOUND")
      if (place === "moved") return reply.redirect(`${ctx.settings.consoleUrl}${request.url}`)
      if (place === "plain") return send(reply.code(errorTable.FORBIDDEN.status), plainPage)
      return undefined
    })
    routes.setErrorHandler((error: Error, request, reply) => {
      const { code, message } = toApiError(error) ?? new ApiError("INTERNAL_ERROR")
      const { status } = errorTable[code]
      if (status >= 500) ctx.log.error({ err: error, requestId: request.id }, "a page of the console failed")
      return send(reply.code(status), { title: "Sign-in", body: wordsBody("That did not work", message, AGAIN) })
    })

    const pageOf = async (request: FastifyRequest, signedIn: (session: Row<"sessions">) => Promise<ConsolePage>) => {
      const session = await sessionOf(ctx, request)
      if (session) return await signedIn(session)
      return isFromElsewhere(request) ? againPage(request) : await signInPage(ctx, request)
    }
    appRoutes(routes, ctx, readConsole, async (request, reply, isBuilding) =>
      // The page reloads until the console is built.
      send(
        isBuilding ? reply.header("refresh", "3") : reply,
        await pageOf(request, session => signedInPage(ctx, session, isBuilding)),
      ),
    )
    routes.get("/console/device", { schema }, async (request, reply) =>
      send(reply, await pageOf(request, async session => codePage(ctx, session))),
    )
    routes.addContentTypeParser(
      "application/x-www-form-urlencoded",
      { parseAs: "string", bodyLimit: 4_096 },
      async (_request: unknown, body: string) => formFields(body),
    )
    routes.post("/console/device", { schema }, async (request, reply) =>
      send(reply, await answerDeviceForm(ctx, request)),
    )

    signInRoutes(routes, ctx, send)
  })
}

type SendPage = (reply: FastifyReply, page: ConsolePage) => Promise<FastifyReply>

/** The routes that redirect to the identity provider, and that accept its redirect back. */
function signInRoutes(routes: Server, ctx: Context, send: SendPage): void {
  // This route stores a row, so neither a HEAD nor a page that a browser preloads may reach it.
  routes.get("/console/sign-in", { schema, exposeHeadRoute: false }, async (request, reply) => {
    refuseUnasked(request)
    const { return: wanted = "/console" } = request.query as { return?: unknown }
    const returnTo = returnPath(wanted)
    if (returnTo === undefined)
      throw new ApiError("VALIDATION_ERROR", undefined, "This link leads to a page that is not the console's.")
    const { url, cookie } = await beginSignIn(ctx, returnTo)
    return reply.header("set-cookie", cookie).header("cache-control", "no-store").redirect(url)
  })

  // Responds with a page that continues automatically. After a redirect that another site started, the browser would
  // not send the session's `Strict` cookie.
  routes.get("/console/callback", { schema, exposeHeadRoute: false }, async (request, reply) => {
    const { secret, returnTo } = await finishSignIn(ctx, request)
    // Set only now: any site can open this address, and must not end a sign-in in progress.
    void reply.header("set-cookie", signInCookie(ctx))
    giveCookie(ctx, reply, secret)
    const body = wordsBody("You are signed in", "The console opens.", { href: returnTo, words: "Continue" })
    return send(reply, { title: "You are signed in", body, next: returnTo })
  })
}

/** Sends the console's plain page, whether or not the visitor is signed in. */
type SendPlain = (request: FastifyRequest, reply: FastifyReply, isBuilding: boolean) => Promise<FastifyReply>

/** The console itself: its page and its files, and the plain page that needs neither a build nor a script. */
function appRoutes(routes: Server, ctx: Context, readConsole: ReadConsole, sendPlain: SendPlain): void {
  for (const path of ["/console", "/console/*"])
    routes.get(path, { schema }, async (request, reply) => {
      const session = await sessionOf(ctx, request)
      const built = session && (await readConsole())
      if (!session || !built) return await sendPlain(request, reply, session !== undefined)
      const nonce = randomBytes(16).toString("base64url")
      const facts = { config: await consoleConfig(ctx), me: await readMe(ctx, session) }
      return reply.headers(consoleHeaders(nonce)).send(appDocument(built, facts, nonce))
    })
  routes.get("/console/signed-in", { schema }, async (request, reply) => sendPlain(request, reply, false))
  routes.get(`${CONSOLE_FILES}:name`, { schema }, async (request, reply) => {
    const file = (await readConsole())?.files.get((request.params as { name: string }).name)
    if (!file) throw new ApiError("NOT_FOUND")
    const isSmall = file.compressed !== undefined && acceptsBrotli(request.headers["accept-encoding"])
    reply.headers({ ...FILE_HEADERS, "content-type": file.type, ...(isSmall ? { "content-encoding": "br" } : {}) })
    return reply.send(isSmall ? file.compressed : file.body)
  })
}

/** A file that changes gets another name. */
const FILE_HEADERS = {
  "cache-control": "public, max-age=31536000, immutable",
  vary: "accept-encoding",
  "cross-origin-resource-policy": "same-origin",
  "x-content-type-options": "nosniff",
}

const plainPage: ConsolePage = {
  title: "The console needs https",
  body: wordsBody(
    "The console needs https",
    "At this address, others on the network could read your sign-in. Open the console over https, or on the machine itself at 127.0.0.1.",
  ),
}

/**
 * Whether a link on another site, such as one in a mail, led here. If so, the browser withheld the session's cookie.
 */
const isFromElsewhere = ({ headers }: FastifyRequest): boolean =>
  headers["sec-fetch-site"] === "cross-site" && headers["sec-fetch-dest"] === "document"

/** A page that opens the same address again, now from this origin. */
function againPage({ url }: FastifyRequest): ConsolePage {
  const next = returnPath(url) ?? "/console"
  return { title: "Console", body: wordsBody("Console", "It opens.", { href: next, words: "Continue" }), next }
}

async function signInPage(ctx: Context, request: FastifyRequest): Promise<ConsolePage> {
  const { name, signIn } = await consoleConfig(ctx)
  const wanted = returnPath(request.url) ?? "/console"
  return { title: "Sign in to the console", body: signInBody({ name, ...signIn, wanted }), hasScript: true }
}

async function signedInPage(ctx: Context, session: Row<"sessions">, isBuilding: boolean): Promise<ConsolePage> {
  const { iss, sub, way, created_at } = session
  const merchant = await merchantNameOf(ctx, session)
  const body = signedInBody({
    isBuilding,
    merchant: merchant === "" ? "Your merchant account has no name yet." : merchant,
    iss,
    sub,
    way: ways[way],
    since: created_at.toUTCString(),
    until: endOf(session).toUTCString(),
    isSandbox: ctx.settings.mode === "sandbox",
  })
  return { title: "Console", body, hasScript: true }
}

/** Throws `FOREIGN_REQUEST` unless a person opened the page: another site's image or a preload is refused. */
function refuseUnasked({ headers }: FastifyRequest): void {
  const dest = headers["sec-fetch-dest"]
  if (dest !== undefined && dest !== "document") throw new ApiError("FOREIGN_REQUEST")
  if (/prefetch|prerender|preview/i.test(`${headers["sec-purpose"]} ${headers.purpose}`))
    throw new ApiError("FOREIGN_REQUEST")
}
