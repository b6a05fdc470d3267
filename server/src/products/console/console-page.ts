/** The HTML of the console's plain pages: the sign-in, and the signed-in page before the console is built. Pure. */
import type { Entry } from "../pages/assets.ts"
import { type Html, html } from "../pages/html.ts"

/** A page of the console. */
export interface ConsolePage {
  title: string
  body: Html
  /** The path to which the page continues immediately. */
  next?: string
  /** Whether the page has buttons. */
  hasScript?: boolean
}

interface SignedOut {
  name: string
  provider: string | null
  merchants: { id: string; name: string }[]
  /** The path that the person wanted. */
  wanted: string
}

/** The facts of the sign-in page: who signs in, and how. */
export function signInBody({ name, provider, merchants, wanted }: SignedOut): Html {
  const to = `/console/sign-in?return=${encodeURIComponent(wanted)}`
  return card(
    merchants.length > 0,
    html`${head("Sign in to the console", name)}
<div class="stack">
${provider !== null && html`<a class="primary" href="${to}">Sign in with ${provider}</a>`}
${merchants.map((each, i) => html`<button type="button" class="${provider === null && i === 0 ? "primary" : "secondary"}" data-does="sandbox" data-merchant="${each.id}">Sign in as ${each.name}</button>`)}
<button type="button" class="secondary" data-does="wallet">Sign in with a wallet</button>
<p class="quiet center">A wallet signs a message. That costs nothing and moves nothing.</p>
</div>
${NOTICE}`,
  )
}

interface SignedIn {
  merchant: string | undefined
  iss: string
  sub: string
  way: string
  /** Formatted for people. */
  since: string
  until: string
  isSandbox: boolean
  /** Whether the console is still being built. */
  isBuilding: boolean
}

/** The page for a signed-in person, without the built console. */
export function signedInBody({ merchant, iss, sub, way, since, until, isSandbox, isBuilding }: SignedIn): Html {
  const fact = (name: string, value: string) => html`<div class="long"><dt>${name}</dt><dd>${value}</dd></div>`
  return card(
    isSandbox,
    html`${head("You are signed in", merchant ?? "You belong to no merchant yet.")}
${isBuilding && html`<p class="note" role="status">The console is being built, which takes about twenty seconds after a change. It then opens automatically. If it does not, the terminal in which Sluice runs says why.</p>`}
<dl class="facts">
${fact("Person", sub)}${fact("Known to", iss)}${fact("Signed in by", way)}
${fact("Since", since)}${fact("Until", until)}
</dl>
<div class="stack"><button type="button" class="secondary" data-does="sign-out">Sign out</button></div>
${NOTICE}`,
  )
}

/** A page that says in one or two sentences what is wrong and what the person can do. */
export const wordsBody = (title: string, words: string, link?: { href: string; words: string }): Html =>
  card(
    false,
    html`${head(title, words)}${link && html`<div class="stack"><a class="primary" href="${link.href}">${link.words}</a></div>`}`,
  )

const NOTICE: Html = {
  markup: `<p id="notice" role="alert" class="center" hidden></p><noscript><p class="center">The buttons need JavaScript.</p></noscript>`,
}

/** The heading of a card, and a sentence below it. */
export const head = (title: string, words: string): Html =>
  html`<header class="head"><h1 class="state">${title}</h1><p class="quiet">${words}</p></header>`

/** The only card of a page. */
export const card = (isSandbox: boolean, content: Html): Html =>
  html`<main class="page"><div class="card">
${isSandbox && html`<p class="test">Test mode. Nothing here is worth anything.</p>`}
${content}</div></main>`

/** The style of a page in the typeface of the console, whose file is at `font`. */
const typeface = (font: string, nonce: string): Html =>
  html`<style nonce="${nonce}">@font-face{font-family:"Geist Variable";src:url("${font}") format("woff2");font-weight:100 900;font-display:swap}body{font-family:"Geist Variable",system-ui,sans-serif}</style>`

/**
 * The whole document. Only scripts with the `nonce` run, because other files of this origin belong to merchants.
 * `font` is the address of the console's typeface, undefined until the console is built.
 */
export function consoleDocument(
  { title, body, next, hasScript }: ConsolePage,
  entry: Entry | undefined,
  nonce: string,
  font?: string,
): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
${next !== undefined && html`<meta http-equiv="refresh" content="0;url=${next}">`}
<title>${title}</title>
<link rel="icon" href="data:,">
${entry?.styles.map(href => html`<link rel="stylesheet" href="${href}">`)}
${font !== undefined && typeface(font, nonce)}
${hasScript && entry && html`<script type="module" nonce="${nonce}" src="${entry.script}"></script>`}
</head>
<body>
${body}
</body>
</html>
`.markup
}

/** The headers of a console page. */
export const consoleHeaders = (nonce: string): Record<string, string> => ({
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": [
    "default-src 'none'",
    `script-src 'nonce-${nonce}' 'strict-dynamic'`,
    `style-src 'self' 'nonce-${nonce}'`,
    "connect-src 'self'",
    "img-src 'self' data:",
    "font-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join("; "),
  "cache-control": "no-store",
  "cross-origin-opener-policy": "same-origin",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
})
