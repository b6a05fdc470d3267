/**
 * The payers' pages: HTML, script files, and the stream of a payment's states. They count only towards the limit
 * `pages`.
 */
import type { FastifyReply, FastifyRequest } from "fastify"
import { catalogues } from "../../../../web/src/i18n/all.ts"
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { Translate } from "../../../../web/src/i18n/words.ts"
import type {
  CheckoutStatus,
  EndedPage,
  PageBase,
  PaywallStatus,
  SubscriptionsPage,
} from "../../../../web/src/page-data.ts"
import { isSettled } from "../../../../web/src/pay/stage.ts"
import { amountTyped } from "../../../../web/src/ui/amounts.ts"
import { keepWatched, watch } from "../../ledger/deposits/make-deposits.ts"
import { withPutAway } from "../../ledger/deposits/put-away.ts"
import { termsOf } from "../../ledger/deposits/read-terms.ts"
import { parseAddress, parseHash } from "../../platform/chain/hex.ts"
import { type Context, reading } from "../../platform/context.ts"
import { ApiError, errorTable } from "../../platform/errors.ts"
import { type Source, sendEvents, sendState } from "../../platform/http/send-events.ts"
import type { Server } from "../../platform/http/server.ts"
import { payerName } from "../../platform/jobs/wake-payload.ts"
import { createLinkSession } from "../checkouts/create-session.ts"
import { publicPaywall } from "../paywalls/submit-payment.ts"
import { startSubscription } from "../paywalls/subscribe.ts"
import { logoOf } from "../settings/change-branding.ts"
import { type Assets, assetRoutes } from "./assets.ts"
import { linkBody, linkEndedBody, payBody, returnBody, subscriptionsBody } from "./bodies.ts"
import { checkoutPage, checkoutStatus } from "./read-checkout.ts"
import { sessionOfInvoice } from "./read-invoice.ts"
import { linkPage, paywallOfSlug, returnPage } from "./read-payment.ts"
import { paywallPage, paywallStatus } from "./read-paywall.ts"
import { receiptPages } from "./receipt-routes.ts"
import { addressBody } from "./render-address.ts"
import { type Page, pageSender, type SendPage } from "./send-page.ts"

/** How often states are read while money is on its way, because new confirmations wake nobody. */
const BUSY_PAUSE_MS = 1_500
const PAUSE_MS = 5_000

const hidden = { hide: true }
const SEE_OTHER = 303

export function pageRoutes(app: Server, ctx: Context, assets: Assets): void {
  assetRoutes(app, assets)
  const sendPage = pageSender(ctx, assets)
  checkoutRoutes(app, ctx, sendPage)
  paywallRoutes(app, ctx, sendPage)
  linkRoutes(app, ctx, sendPage)
  otherRoutes(app, ctx, sendPage)
  receiptPages(app, ctx, assets, sendPage)
  logoRoute(app, ctx)
}

/** `/pay/:sessionId` and the stream of its states. */
function checkoutRoutes(app: Server, ctx: Context, sendPage: SendPage): void {
  const shownCheckout = async (sessionId: string, lang: Language, t: Translate): Promise<Page & { base: PageBase }> => {
    const { page: data, isWatchEnding } = await checkoutPage(ctx, sessionId, lang)
    if (isWatchEnding) await watch(ctx, sessionId)
    return { title: t("payTo", { merchant: data.merchant }), body: payBody(t, data), base: data, framed: true, data }
  }
  app.get("/pay/:sessionId", { schema: hidden }, async (request, reply) => {
    const { sessionId } = request.params as { sessionId: string }
    return await sendPage(request, reply, (t, lang) => shownCheckout(sessionId, lang, t))
  })
  app.get("/invoice/:id", { schema: hidden }, async (request, reply) => {
    const { id } = request.params as { id: string }
    return await sendPage(request, reply, async (t, lang) => {
      const page = await shownCheckout(await sessionOfInvoice(await reading(ctx), id), lang, t)
      return { ...page, title: `${t("invoice")} · ${page.base.merchant}` }
    })
  })

  const checkoutSource = (request: FastifyRequest): Source<CheckoutStatus> => {
    const { sessionId } = request.params as { sessionId: string }
    const { txHash } = request.query as { txHash?: unknown }
    const hash = parseHash(txHash)
    let isEnding = false
    return {
      key: ["checkout page", sessionId, hash],
      names: [sessionId],
      read: async () => {
        const { status, isWatchEnding } = await checkoutStatus(ctx, sessionId, hash)
        isEnding = isWatchEnding
        return status
      },
      tend: async () => (isEnding ? await keepWatched(ctx, sessionId) : undefined),
      isOver: isSettled,
      // A payment that is captured immediately is still on its way while it is `authorized`.
      pauseMs: ({ status }) => (status === "verifying" || status === "authorized" ? BUSY_PAUSE_MS : PAUSE_MS),
    }
  }
  app.get("/pay/:sessionId/events", { schema: hidden, exposeHeadRoute: false }, (request, reply) =>
    sendEvents(ctx, request, reply, checkoutSource(request)),
  )
  app.get("/pay/:sessionId/status", { schema: hidden }, (request, reply) =>
    sendState(ctx, request, reply, checkoutSource(request)),
  )
}

/** `/paywall/:id` and the stream of its states for one payer. */
function paywallRoutes(app: Server, ctx: Context, sendPage: SendPage): void {
  app.get("/paywall/:id", { schema: hidden }, async (request, reply) => {
    const { id } = request.params as { id: string }
    return await sendPage(request, reply, async (t, lang) => {
      const data = await paywallPage(await reading(ctx), id, lang)
      await watch(ctx, id)
      return { title: `${data.name} · ${data.merchant}`, body: payBody(t, data), base: data, framed: true, data }
    })
  })
  // This route starts a checkout, and counts towards the limits like a link's checkout. A HEAD must start nothing.
  app.get("/paywall/:id/subscribe", { schema: hidden, exposeHeadRoute: false }, async (request, reply) => {
    refuseBackground(request, reply)
    const { id } = request.params as { id: string }
    const query = languageIn(request)
    const start = async () => await startSubscription(ctx, await publicPaywall(ctx, id))
    const session = await start().catch(error => error as Error)
    if (!(session instanceof Error)) return reply.redirect(`/pay/${session.id}${query}`, SEE_OTHER)
    // The paywall's page shows whether a subscription can be paid now.
    if (session instanceof ApiError && errorTable[session.code].status < 500)
      return reply.redirect(`/paywall/${encodeURIComponent(id)}${query}`, SEE_OTHER)
    return await sendPage(request, reply, async () => {
      throw session
    })
  })
  const paywallSource = (request: FastifyRequest): Source<PaywallStatus> => {
    const { id } = request.params as { id: string }
    const { address, txHash } = request.query as { address?: unknown; txHash?: unknown }
    const payer = { address: parseAddress(address), txHash: parseHash(txHash) }
    return {
      // Each payer has its own access.
      key: ["paywall page", id, payer.address, payer.txHash],
      names: [id, payerName(id, payer.address)],
      read: async () => await paywallStatus(await reading(ctx), id, payer),
      tend: () => keepWatched(ctx, id),
      isOver: ({ status }) => status === "confirmed",
      pauseMs: ({ status }) => (status === "verifying" ? BUSY_PAUSE_MS : PAUSE_MS),
    }
  }
  app.get("/paywall/:id/events", { schema: hidden, exposeHeadRoute: false }, (request, reply) =>
    sendEvents(ctx, request, reply, paywallSource(request)),
  )
  app.get("/paywall/:id/status", { schema: hidden }, (request, reply) =>
    sendState(ctx, request, reply, paywallSource(request)),
  )
}

/** `/p/:slug`, and the target of its form for pages without a script. */
function linkRoutes(app: Server, ctx: Context, sendPage: SendPage): void {
  app.get("/p/:slug", { schema: hidden }, async (request, reply) => {
    const { slug } = request.params as { slug: string }
    const paywallId = await paywallOfSlug(await reading(ctx), slug)
    if (paywallId !== undefined) return reply.redirect(`/paywall/${paywallId}${languageIn(request)}`)
    return await sendPage(request, reply, (t, lang) => shownLink(ctx, slug, lang, t))
  })

  // Counts towards the limits like `POST /api/pay/sessions`. A HEAD must start nothing.
  app.get("/p/:slug/start", { schema: hidden, exposeHeadRoute: false }, async (request, reply) => {
    const { slug } = request.params as { slug: string }
    refuseBackground(request, reply)
    const { amount: typed = "" } = request.query as { amount?: unknown }
    const amount = typeof typed === "string" ? amountTyped(typed) : undefined
    const start = async () => (await createLinkSession(ctx, { slug, ...(amount && { amount }) })).session
    const session = await start().catch(error => error as Error)
    if (!(session instanceof Error)) return reply.redirect(`/pay/${session.id}${languageIn(request)}`, SEE_OTHER)
    return await sendPage(request, reply, async (t, lang) => {
      if (!(session instanceof ApiError) || errorTable[session.code].status >= 500) throw session
      reply.code(errorTable[session.code].status)
      return await shownLink(ctx, slug, lang, t, session)
    })
  })
}

/** The headers with which browsers mark a request that loads a page ahead: the current header, and older ones. */
const AHEAD = ["sec-purpose", "purpose", "x-purpose", "x-moz"]

/**
 * Throws `FORBIDDEN` for a request that nobody caused by a click. Any site can make its visitors' browsers request a
 * URL, for example as an image, and browsers load pages ahead. A browser discards an error and asks again when the
 * person clicks, but it would show a 204 as the page.
 */
function refuseBackground({ headers }: FastifyRequest, reply: FastifyReply): void {
  const { "sec-fetch-site": site, "sec-fetch-dest": dest } = headers
  void reply.header("cache-control", "no-store")
  if (AHEAD.some(name => /prefetch|prerender|preview/i.test(`${headers[name]}`)))
    throw new ApiError("FORBIDDEN", undefined, "A prefetched page starts no checkout. Open the link.")
  if (site === "cross-site" && dest !== "document")
    throw new ApiError(
      "FORBIDDEN",
      undefined,
      "Another site can't start a checkout in the background. Open the link's page.",
    )
}

/** The query that keeps the chosen language in the next URL. */
function languageIn(request: FastifyRequest): string {
  const { lang = "" } = request.query as { lang?: unknown }
  return Object.hasOwn(catalogues, String(lang)) ? `?lang=${lang}` : ""
}

/** The page of a link, or of an ended link. `fault` says what is wrong with the typed input. */
async function shownLink(ctx: Context, slug: string, lang: Language, t: Translate, fault?: ApiError): Promise<Page> {
  const { base, data } = await linkPage(await reading(ctx), slug, lang)
  if (!data) {
    const ended: EndedPage = { kind: "ended", ...base }
    return { title: t("linkEnded"), body: linkEndedBody(t, base), base, framed: true, data: ended }
  }
  const words = fault && (fault.code === "VALIDATION_ERROR" ? t("linkAmountInvalid") : fault.message)
  return { title: `${data.title} · ${data.merchant}`, body: linkBody(t, data, words), base, framed: true, data }
}

/** The pages for receipts, returns, where an address's money can go, and a subscriber. */
function otherRoutes(app: Server, ctx: Context, sendPage: SendPage): void {
  app.get("/address/:address", { schema: hidden }, async (request, reply) => {
    const address = parseAddress((request.params as { address: string }).address)
    return await sendPage(request, reply, async (t, lang) => {
      if (!address) throw new ApiError("DEPOSIT_NOT_FOUND")
      const read = async () => await termsOf(await reading(ctx), address)
      const terms = await withPutAway(ctx, { addresses: [address] }, read)
      return { title: t("moneyGoes"), body: addressBody(ctx, t, lang, terms) }
    })
  })
  app.get("/subscriptions", { schema: hidden }, async (request, reply) =>
    sendPage(request, reply, async (t, lang) => {
      const data: SubscriptionsPage = { kind: "subscriptions", lang, sandbox: ctx.settings.mode === "sandbox" }
      return { title: t("subscriptions"), body: subscriptionsBody(t, data), data }
    }),
  )

  app.get("/return/:paymentId", { schema: hidden }, async (request, reply) => {
    const { paymentId } = request.params as { paymentId: string }
    return await sendPage(request, reply, async (t, lang) => {
      const { base, data } = await returnPage(await reading(ctx), paymentId, lang)
      return { title: t("returnTitle"), body: returnBody(t, base, data), base, ...(data ? { data } : {}) }
    })
  })
}

/**
 * Serves `/logo/:hash`, the merchants' logos. Browsers cache them for a year, because a changed logo gets another
 * name.
 */
function logoRoute(app: Server, ctx: Context): void {
  app.get("/logo/:hash", { schema: hidden }, async (request, reply) => {
    const { logo, logo_type } = (await logoOf(await reading(ctx), (request.params as { hash: string }).hash)) ?? {}
    if (!logo || !logo_type) throw new ApiError("NOT_FOUND")
    reply.headers({
      "content-type": logo_type,
      "cache-control": "public, max-age=31536000, immutable",
      "x-content-type-options": "nosniff",
      // A logo that is opened directly can't run or load anything, whatever its bytes are.
      "content-security-policy": "default-src 'none'; sandbox",
      "cross-origin-resource-policy": "same-origin",
    })
    return reply.send(Buffer.from(logo))
  })
}
