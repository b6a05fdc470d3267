/**
 * `GET /sandbox` shows what this sandbox contains and what to try first. The page is plain HTML; its links work
 * without a script.
 */
import { checksummed } from "../../platform/chain/hex.ts"
import { type Context, inTransaction } from "../../platform/context.ts"
import type { Server } from "../../platform/http/server.ts"
import { createSession } from "../../products/checkouts/create-session.ts"
import { type Entry, readAssets } from "../../products/pages/assets.ts"
import { contentPolicy, documentOf, type Html, html } from "../../products/pages/html.ts"
import { createPaywall } from "../../products/paywalls/manage-paywalls.ts"

/** The facts that the page lists. */
interface SandboxFacts {
  baseUrl: string
  rpcUrl: string
  chainId: number
  token: string
  file: string
  now: Date
  merchants: { id: string; name: string }[]
  buyers: { address: string }[]
  entry: Entry | undefined
}

/** The headers of the page. */
const sandboxPageHeaders = {
  "content-type": "text/html; charset=utf-8",
  "content-security-policy": contentPolicy(),
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
}

const fact = (name: string, value: string): Html => html`<div><dt>${name}</dt><dd><code>${value}</code></dd></div>`

/** The whole page. */
function sandboxPage(facts: SandboxFacts): string {
  const { baseUrl, merchants, buyers } = facts
  const body = html`<main class="page"><div class="card">
<p class="test">Test mode. Nothing here is worth anything.</p>
<header class="head"><h1 class="state">Sluice sandbox</h1>
<p class="quiet">Sell something, pay for it with test money, and see what happens.</p></header>
<div class="stack">
<a class="primary" href="/console">Open the merchant's console</a>
<p class="quiet">The seller's side: create a link, and see its payments.</p>
<a class="secondary" href="/sandbox/try/checkout">Try a checkout</a>
<a class="secondary" href="/sandbox/try/paywall">Try a paywall</a>
<p class="quiet">The payer's side: pay with the test wallet.</p>
<a class="secondary" href="/docs">Read the documents</a>
</div>
<details class="stack"><summary>For developers: keys, addresses, tools</summary>
<section class="stack"><h2 class="state">Merchants</h2><dl class="facts">
${merchants.map(({ id, name }) => fact(name, id))}</dl>
<p class="quiet">Their API keys and tokens are in ${facts.file}.</p></section>
<section class="stack"><h2 class="state">Buyers</h2><dl class="facts">
${buyers.map(({ address }, i) => fact(`Buyer ${i}`, address))}</dl>
<p class="quiet">The pages' test wallet is buyer 0.</p></section>
<section class="stack"><h2 class="state">Chain</h2><dl class="facts">
${fact("Node", facts.rpcUrl)}${fact("Chain id", String(facts.chainId))}${fact("Test USDC", facts.token)}
${fact("The service's time", facts.now.toISOString())}</dl></section>
<section class="stack"><h2 class="state">Tools</h2><dl class="facts">
${fact("Give money", `curl ${baseUrl}/sandbox/faucet -H 'Content-Type: application/json' -d '{"address":"0x…"}'`)}
${fact("Pay as a buyer", `curl ${baseUrl}/sandbox/pay -H 'Content-Type: application/json' -d '{"to":"0x…","amount":5}'`)}
${fact("Move the clock", `curl ${baseUrl}/sandbox/clock -H 'Content-Type: application/json' -d '{"advance":"1h"}'`)}
</dl><p><a href="/sandbox/inbox">Received webhooks</a></p></section>
</details>
</div></main>`
  return documentOf({ lang: "en", title: "Sluice sandbox", entry: facts.entry, body })
}

interface Parts {
  ctx: Context
  merchants: { id: string; name: string }[]
  buyers: { address: string }[]
  rpcUrl: string
  file: string
}

/** `GET /sandbox`, to which `/` redirects, and the targets of the page's buttons: a new checkout and a new paywall. */
export function sandboxPageRoutes(app: Server, { ctx, merchants, buyers, rpcUrl, file }: Parts): void {
  const [network] = ctx.chain.networks
  const [merchant] = merchants
  if (!network || !merchant) throw new Error("the sandbox has no network or merchant")
  const entry = readAssets().entryOf("src/pay/main.tsx")
  const { baseUrl } = ctx.settings
  const hidden = { hide: true }
  app.get("/", { schema: hidden }, async (_request, reply) => reply.redirect("/sandbox"))
  app.get("/sandbox", { schema: hidden }, async (_request, reply) => {
    const token = checksummed(network.token.address)
    const chain = { rpcUrl, chainId: network.chainId, token, file, now: ctx.now() }
    return reply.headers(sandboxPageHeaders).send(sandboxPage({ baseUrl, merchants, buyers, entry, ...chain }))
  })
  // A HEAD must create nothing.
  app.get("/sandbox/try/checkout", { schema: hidden, exposeHeadRoute: false }, async (_request, reply) => {
    const order = { amount: "19.90", description: "Order 1001: three books", redirectUrl: `${baseUrl}/sandbox` }
    const { session } = await inTransaction(ctx, ctx => createSession(ctx, merchant.id, order))
    return reply.redirect(`/pay/${session.id}`)
  })
  app.get("/sandbox/try/paywall", { schema: hidden, exposeHeadRoute: false }, async (_request, reply) => {
    const film = {
      name: "The lighthouse film",
      description: "Half an hour, in English",
      price: "5",
      contentData: { Password: "blue-42" },
    }
    const { id } = await inTransaction(ctx, ctx => createPaywall(ctx, merchant.id, film))
    return reply.redirect(`/paywall/${id}`)
  })
}
