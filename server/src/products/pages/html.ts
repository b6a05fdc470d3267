/** The HTML of the pages. Every value in a page passes through {@link html}, which escapes it. */
import { hash } from "node:crypto"
import { directionOf, type Language } from "../../../../web/src/i18n/languages.ts"
import type { Entry } from "./assets.ts"

/** HTML that is already escaped. */
export interface Html {
  readonly markup: string
}
type Value = string | number | Html | readonly Html[] | undefined | null | false

const escapes: Record<string, string> = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" }
const rendered = (value: Value): string => {
  if (value === undefined || value === null || value === false) return ""
  if (typeof value === "string" || typeof value === "number")
    return String(value).replace(/[&<>"']/g, c => escapes[c] ?? c)
  return "markup" in value ? value.markup : value.map(each => each.markup).join("")
}

/** Fills a template with escaped values. False, null and undefined are rendered as nothing. */
export const html = (parts: TemplateStringsArray, ...values: Value[]): Html => ({
  markup: parts.reduce((text, part, i) => `${text}${rendered(values[i - 1])}${part}`),
})

/** A URL that is safe in a link; null if it is not http(s). */
export function httpLink(text: string | null): string | null {
  const url = text !== null && URL.canParse(text) ? new URL(text) : undefined
  return url?.protocol === "https:" || url?.protocol === "http:" ? url.href : null
}

/**
 * An empty frame, the only part of a page that the embedding site can count (`window.length`), even if the script
 * failed. With it, `embed.js` can tell a page from the error that a browser shows for a page that must not be framed.
 */
const PROBE: Html = { markup: "<iframe hidden></iframe>" }

/** A whole page. Its script reads `data`. */
export function documentOf(page: {
  lang: Language
  title: string
  entry: Entry | undefined
  body: Html
  /** An extra style, which must contain no text from outside. */
  style?: string
  /** Whether another site may show the page in a frame. */
  framed?: boolean
  data?: object
}): string {
  const { lang, title, entry, body, style, framed, data } = page
  // Entities have no meaning inside a script element, and only `<` could end it.
  const json = data && JSON.stringify(data).replace(/</g, "\\u003c")
  return html`<!doctype html>
<html lang="${lang}" dir="${directionOf(lang)}">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>${title}</title>
<link rel="icon" href="data:,">
${entry?.styles.map(href => html`<link rel="stylesheet" href="${href}">`)}
${style && html`<style>${{ markup: style }}</style>`}
${entry?.preload.map(href => html`<link rel="modulepreload" href="${href}">`)}
${entry && data && html`<script type="module" src="${entry.script}"></script>`}
</head>
<body>
${framed && PROBE}
${body}
${json !== undefined && html`<script type="application/json" id="data">${{ markup: json }}</script>`}
</body>
</html>
`.markup
}

/**
 * The policy of a page: it loads files only from this server, and runs no inline code. Wallets provide their images
 * as data. `style` is the only inline style that is allowed, and `frames` are the sites that may frame the page.
 */
export const contentPolicy = ({
  style = "",
  frames = [],
}: {
  style?: string
  frames?: readonly string[] | undefined
} = {}) =>
  [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self'${style && ` 'sha256-${hash("sha256", style, "base64")}'`}`,
    "img-src 'self' data:",
    "connect-src 'self'",
    "form-action 'self'",
    "base-uri 'none'",
    `frame-ancestors ${frames.length > 0 ? frames.join(" ") : "'none'"}`,
  ].join("; ")
