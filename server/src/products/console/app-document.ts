/** The HTML of the built console: an empty page, the facts that it starts with, and the names of its files. Pure. */
import { type Html, html } from "../pages/html.ts"
import type { BuiltConsole } from "./built-console.ts"

/** The path under which the console's files are served. */
export const CONSOLE_FILES = "/console/assets/"

/** Runs before the first paint, so that a dark page does not flash white. */
const THEME = `try{var t=localStorage.getItem("sluice-theme");document.documentElement.dataset.mantineColorScheme=t==='"dark"'||t!=='"light"'&&matchMedia("(prefers-color-scheme:dark)").matches?"dark":"light"}catch{}`

/** Explains the empty page if one of its first files fails to load, because no other script runs then. */
const MISSING = `addEventListener("error",function(e){if(/^(SCRIPT|LINK)$/.test(e.target.tagName)){var m=document.getElementById("missing");if(m)m.hidden=false}},true)`

/** The whole document. The script reads `facts`, whose strings can't close the element that contains them. */
export function appDocument({ script, styles, preload }: BuiltConsole, facts: unknown, nonce: string): string {
  const json: Html = { markup: JSON.stringify(facts).replace(/</g, "\\u003c") }
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>Console</title>
<link rel="icon" href="data:,">
<script nonce="${nonce}">${{ markup: `${THEME};${MISSING}` }}</script>
${styles.map(name => html`<link rel="stylesheet" href="${CONSOLE_FILES}${name}">`)}
${preload.map(name => html`<link rel="modulepreload" nonce="${nonce}" href="${CONSOLE_FILES}${name}">`)}
<script type="module" nonce="${nonce}" src="${CONSOLE_FILES}${script}"></script>
</head>
<body>
<div id="root"></div>
<div id="missing" class="state" role="alert" hidden>
<h1>The console could not be loaded</h1>
<p>One of its files did not load. Check the connection, then reload the page.</p>
<a href="">Load it again</a>
</div>
<noscript>The console needs JavaScript.</noscript>
<script type="application/json" id="facts">${json}</script>
</body>
</html>
`.markup
}
