/** The HTML of `/pay/:sessionId` before its script runs: all that is needed to pay, without one. Pure. */
import type { Translate } from "../../../web/src/i18n/words.ts"
import type { CheckoutPage } from "../../../web/src/page-data.ts"
import { isPayable, stageOf } from "../../../web/src/pay/stage.ts"
import { wordsOf } from "../../../web/src/pay/words-of.ts"
import { localAmount } from "../../../web/src/ui/amounts.ts"
import { type Html, html } from "./html.ts"

/** The card of a checkout with its state, and with what to send where while it is to be paid. */
export function checkoutBody(t: Translate, page: CheckoutPage): Html {
  const { status, merchant, description, token, network } = page
  const stage = stageOf(status, {})
  const words = wordsOf(t, page, status, stage)
  const asked = stage === "part" ? status.missing : status.amount
  return html`<main id="app" class="page"><div class="card">
${page.sandbox && html`<p class="test">${t("testMode")}</p>`}
<header class="head"><p class="merchant"><bdi>${merchant}</bdi></p>
${description && html`<p class="what"><bdi>${description}</bdi></p>`}
<h1 class="amount"><span class="number">${localAmount(asked, page.lang)}</span> <span class="unit">${token.symbol}</span></h1>
<p class="quiet">${t("onNetwork", { symbol: token.symbol, network: network.title })}</p></header>
${words.title && html`<h2 class="state">${words.title}</h2>`}
${words.text && html`<p>${words.text}</p>`}
${isPayable(stage) && status.payTo !== undefined && byHand(t, page, status.payTo)}
</div></main>`
}

function byHand(t: Translate, page: CheckoutPage, payTo: string): Html {
  const { token, network, status } = page
  const row = (name: string, value: string) => html`<div><dt>${name}</dt><dd><code>${value}</code></dd></div>`
  return html`<div class="plain"><p>${t("manualIntro")}</p>
<dl class="facts">
${row(t("amount"), `${status.missing} ${token.symbol}`)}
${row(t("address"), payTo)}
${row(t("network"), `${network.title} (${network.chainId})`)}
${row(t("tokenContract"), token.address)}
</dl>
<p class="quiet">${t("manualWarning", { symbol: token.symbol, network: network.title })}</p>
<noscript><p class="quiet">${t("noScript")}</p></noscript></div>`
}
