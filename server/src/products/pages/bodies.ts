/** The HTML of the pages before their script runs, with everything needed to pay without a script. Pure. */
import { type Language, languages } from "../../../../web/src/i18n/languages.ts"
import type { Translate } from "../../../../web/src/i18n/words.ts"
import type {
  CheckoutStatus,
  LinkPage,
  PageBase,
  PayPage,
  PaywallPage,
  Reservation,
  ReturnPage,
  SubscriptionsPage,
  WaitingMoney,
} from "../../../../web/src/page-data.ts"
import { everyOf, periodOf, renewalMessage } from "../../../../web/src/pay/billing.ts"
import { ledgerOf, reclaimFacts } from "../../../../web/src/pay/reservation.ts"
import { isDone, isPayable, stageOf } from "../../../../web/src/pay/stage.ts"
import { currencyShown, waitingIn, waitingMessage } from "../../../../web/src/pay/waiting.ts"
import { wordsOf } from "../../../../web/src/pay/words-of.ts"
import { localAmount } from "../../../../web/src/ui/amounts.ts"
import { isLong } from "../../../../web/src/ui/long.ts"
import { momentOf } from "../../../../web/src/ui/moments.ts"
import { type Html, html } from "./html.ts"
import type { Receipt } from "./read-payment.ts"

/** The card of a checkout or paywall with its state and, until it is paid, what to send where. */
export function payBody(t: Translate, page: PayPage): Html {
  const { status, description, token, network } = page
  const stage = stageOf(status, {})
  const words = wordsOf(t, page, status, stage, ZONE)
  const asked = stage === "part" ? status.missing : status.amount
  const renewal = page.kind === "checkout" ? page.renewal : undefined
  return card(
    t,
    page,
    html`<header class="head">${payee(page)}
${page.kind === "paywall" && html`<p class="name"><bdi>${page.name}</bdi></p>`}
${renewal && html`<p class="name"><bdi>${renewal.product}</bdi></p>`}
${what(t, description)}
<h1 class="amount"><span class="number">${localAmount(asked, page.lang)}</span> <span class="unit">${token.symbol}</span></h1>
<p class="quiet">${t("onNetwork", { symbol: token.symbol, network: network.title })}</p>
${isPayable(stage) && page.kind === "checkout" && !status.invoice && html`<p class="quiet">${t("payBefore", { time: momentOf(status.expiresAt, page.lang, { zone: ZONE }) })}</p>`}
${isPayable(stage) && renewal && html`<p class="quiet renews">${renewalMessage(t, page.lang, renewal)}</p>`}</header>
${status.invoice && invoiceFacts(t, page.lang, status.invoice)}
${
  (words.title || words.text) &&
  html`<div class="live ${words.tone}">${isDone(stage, status) && TICK}
${words.title && html`<h2 class="state">${words.title}</h2>`}
${words.text && html`<p>${words.text}</p>`}</div>`
}
${returns(t, page, waitingIn(status, stage))}
${isPayable(stage) && status.reservation && html`<div class="plain"><p class="note">${t("reserveNoScript")}</p></div>`}
${isPayable(stage) && status.payTo !== undefined && !status.reservation && byHand(t, page, status.payTo)}
${status.reservation && ledger(t, page, status.reservation)}
${status.reservation && takeBack(t, status.reservation)}
${page.kind === "checkout" && stage === "paid" && link(`/receipt/${status.sessionId}?lang=${page.lang}`, t("viewReceipt"))}
${status.redirectUrl && isDone(stage, status) && html`<a class="primary" href="${status.redirectUrl}">${t("backTo", { merchant: page.merchant })}</a>`}
${page.kind === "paywall" && stage !== "paid" && !status.paused && subscribing(t, page)}
${status.invoice && link(`/subscriptions?lang=${page.lang}`, t("manageSubscription"))}`,
  )
}

/** The mark of a completed payment. */
const TICK: Html = {
  markup: `<svg class="tick" viewBox="0 0 48 48" aria-hidden="true"><circle cx="24" cy="24" r="24"/><path d="M14 25l7 7 14-15"/></svg>`,
}

/** The place where the payer of waiting money can name a return address. */
function returns(t: Translate, { lang }: PageBase, waiting: readonly WaitingMoney[]): Html | null {
  const to = ({ paymentId }: WaitingMoney) => `/return/${paymentId}?lang=${lang}`
  const [first, ...others] = waiting
  if (!first) return null
  if (others.length === 0) return html`<a class="secondary" href="${to(first)}">${t("askReturn")}</a>`
  return html`<div class="stack center"><p>${t("askReturn")}</p><ul class="lines">${waiting.map(each => html`<li><a href="${to(each)}">${waitingMessage(t, lang, each)}</a></li>`)}</ul></div>`
}

const link = (href: string, words: string): Html => html`<a class="link center" href="${href}">${words}</a>`

/** The period of an invoice, and when the invoice is due. */
const invoiceFacts = (t: Translate, lang: Language, invoice: NonNullable<CheckoutStatus["invoice"]>): Html =>
  html`<dl class="facts ledger"><div><dt>${t("period")}</dt><dd>${periodOf(invoice.periodStart, invoice.periodEnd, lang, ZONE)}</dd></div>
<div><dt>${t("dueOn")}</dt><dd>${momentOf(invoice.dueAt, lang, { zone: ZONE })}</dd></div></dl>`

/** The link to subscribe, if a paywall offers it. */
function subscribing(t: Translate, { lang, subscription, status, token }: PaywallPage): Html | null {
  if (!subscription) return null
  const amount = localAmount(subscription.amount, lang)
  return html`<form class="stack" action="/paywall/${status.sessionId}/subscribe"><input type="hidden" name="lang" value="${lang}">
<button class="secondary">${t("subscribeFor", { amount, symbol: token.symbol, every: everyOf(t, lang, subscription) })}</button>
<p class="quiet center">${renewalMessage(t, lang, subscription)}</p></form>`
}

/** The time zone of pages without a script. Such a page can't know the time zone of its reader. */
const ZONE = "UTC"

/** The amounts reserved, captured, released and refunded, with their transactions; empty before a reservation. */
function ledger(t: Translate, page: PageBase, reservation: Reservation): Html | null {
  const rows = ledgerRows(t, page, reservation)
  return rows.length === 0 ? null : html`<dl class="facts ledger">${rows}</dl>`
}

/** How the payer can reclaim the rest without the service. */
function takeBack(t: Translate, reservation: Reservation): Html | null {
  const facts = reclaimFacts(reservation)
  if (facts.length === 0) return null
  return html`<dl class="facts">${facts.map(({ name, value }) => html`<div class="long"><dt>${t(name)}</dt><dd><code dir="ltr">${value}</code></dd></div>`)}</dl>`
}

const ledgerRows = (t: Translate, page: PageBase, reservation: Reservation): Html[] =>
  ledgerOf(reservation).map(
    ({ name, amount, txHashes }) =>
      html`<div><dt>${t(name)}</dt><dd>${localAmount(amount, page.lang)} ${page.token.symbol}</dd>${txHashes.length > 0 && html`<dd class="hashes">${txHashes.map(hash => transaction(page, hash))}</dd>`}</div>`,
  )

/** A transaction's hash, linked to the network's explorer if it has one. */
function transaction({ network }: PageBase, txHash: string): Html {
  const hash = html`<code dir="ltr">${txHash}</code>`
  return network.explorer === null
    ? hash
    : html`<a href="${network.explorer}/tx/${txHash}" rel="noreferrer">${hash}</a>`
}

/** A card with this content and the language links. A page's script brings its own language menu. */
export const card = (
  t: Translate,
  { sandbox, lang }: Pick<PageBase, "sandbox" | "lang">,
  body: Html,
  { path = "", isFinal = false } = {},
): Html =>
  html`<main id="app" class="page"><div class="card">${sandbox && html`<p class="test">${t("testMode")}</p>`}${body}</div>
${languageLinks(t, lang, isFinal ? "" : "plain", path)}</main>`

/**
 * A link for each language, without a script. `path` is the page's own path, if the current URL does something else.
 */
export const languageLinks = (t: Translate, lang: string, form = "", path = ""): Html =>
  html`<nav class="foot languages${form && ` ${form}`}" aria-label="${t("language")}">${Object.entries(languages).map(
    ([key, name]) =>
      key === lang
        ? html`<span lang="${key}" aria-current="true">${name}</span>`
        : html`<a href="${path}?lang=${key}" lang="${key}" hreflang="${key}">${name}</a>`,
  )}</nav>`

/** A text of the merchant's. A long text is cut until the reader opens the rest. */
const what = (t: Translate, text: string | null): Html | null =>
  text
    ? html`<div class="what"><p><bdi>${text}</bdi></p>${isLong(text) && html`<details><summary><span class="more">${t("showMore")}</span><span class="less">${t("showLess")}</span></summary></details>`}</div>`
    : null

/** The payee: the merchant's logo and name. */
const payee = ({ brand, merchant }: PageBase): Html =>
  html`${brand.logo && html`<img class="logo" src="${brand.logo}" alt="">`}<p class="merchant"><bdi>${merchant}</bdi></p>`

/** The card of a payment link. `fault` says what is wrong with the typed amount. */
export const linkBody = (t: Translate, page: LinkPage, fault?: string): Html =>
  card(
    t,
    page,
    html`<header class="head">${payee(page)}
<h1 class="state"><bdi>${page.title}</bdi></h1>
${what(t, page.description)}
${page.amount !== null && html`<p class="amount">${localAmount(page.amount, page.lang)} <span class="unit">${page.token.symbol}</span></p>`}</header>
<form class="stack plain" action="/p/${page.slug}/start"><input type="hidden" name="lang" value="${page.lang}">
${page.amount === null && amountField(t, page, fault)}
${page.amount !== null && fault && html`<p class="note bad">${fault}</p>`}
<button class="primary">${t("continue")}</button></form>`,
    // After an amount was refused, the current URL is the one that starts a checkout.
    { path: `/p/${page.slug}` },
  )

const amountField = (t: Translate, { token }: LinkPage, fault = ""): Html =>
  html`<div class="field"><label for="amount">${t("linkAmount", { symbol: token.symbol })}</label>
<input id="amount" name="amount" class="money" inputmode="decimal" autocomplete="off" required aria-describedby="amount-fault"${{ markup: fault && ' aria-invalid="true"' }}>
<p class="fault" id="amount-fault">${fault}</p></div>`

/** The card of a link that no longer starts checkouts. */
export const linkEndedBody = (t: Translate, base: PageBase): Html =>
  card(
    t,
    base,
    html`<header class="head">${payee(base)}
<h1 class="state">${t("linkEnded")}</h1></header><p class="center">${t("linkEndedWords", { merchant: base.merchant })}</p>`,
    { isFinal: true },
  )

/** The card for returning a payment, or for a payment that needs no return. */
export const returnBody = (t: Translate, base: PageBase, page: ReturnPage | null): Html =>
  card(
    t,
    base,
    page
      ? html`<header class="head">${payee(base)}
<h1 class="state">${t("returnTitle")}</h1></header>
<p class="center">${t("returnWords", { merchant: base.merchant, symbol: currencyShown(page.currency), amount: localAmount(page.amount, base.lang) })}</p>`
      : html`<header class="head">${payee(base)}
<h1 class="state">${t("returnNothing")}</h1></header><p class="center">${t("returnNothingWords")}</p>`,
    { isFinal: page === null },
  )

/** A subscriber's page; signing in needs the script. */
export const subscriptionsBody = (t: Translate, page: SubscriptionsPage): Html =>
  card(
    t,
    page,
    html`<header class="head"><h1 class="state">${t("subscriptions")}</h1></header>
<p class="center">${t("subscriptionsWords")}</p>
<div class="plain"><p class="note">${t("subscriptionsNoScript")}</p></div>`,
  )

/** What a receipt's holder can keep: the receipt's file, and a link. No server sees the part of the link after #. */
export interface KeptReceipt {
  seq: number
  /** The link; undefined if the receipt's key was erased. */
  link: string | undefined
}

function keptRows(t: Translate, { id }: Receipt, kept: readonly KeptReceipt[]): Html {
  if (kept.length === 0) return html`<p class="quiet center">${t("receiptSoon")}</p>`
  return html`${kept.map(
    ({ seq, link: href }) =>
      html`<p class="center"><a href="/receipt/${id}/file?seq=${seq}" download="receipt-${seq}.json">${t("receiptSave")}</a>${href && html` · <a href="${href}">${t("receiptVerify")}</a>`}</p>`,
  )}`
}

/** A receipt; it needs no script. */
export function receiptBody(t: Translate, receipt: Receipt, kept: readonly KeptReceipt[]): Html {
  const { merchant, token, network, lang, ended, reservation } = receipt
  const row = (name: string, value: Html, form = "") =>
    html`<div class="${form}"><dt>${name}</dt><dd>${value}</dd></div>`
  return card(
    t,
    receipt,
    html`<header class="head">${payee(receipt)}
<h1 class="state">${t("receipt")}</h1>
<p class="amount">${localAmount(receipt.amount, lang)} <span class="unit">${token.symbol}</span></p>
${what(t, receipt.what)}</header>
${ended && html`<div class="live ${ended === "released" || ended === "refunded" ? "neutral" : "bad"}"><h2 class="state">${t(ended)}</h2>${ended === "reversed" && html`<p>${t("reversedWords")}</p>`}</div>`}
<dl class="facts ledger">
${ended !== "released" && row(t("paidTo"), html`<bdi>${merchant}</bdi>`)}
${reservation ? ledgerRows(t, receipt, reservation) : row(t("amount"), html`<bdi dir="ltr">${receipt.amount} ${token.symbol}</bdi>`)}
${row(t("paidOn"), html`<time datetime="${receipt.paidAt.toISOString()}">${momentOf(receipt.paidAt, lang, { zone: ZONE, dateStyle: "long" })}</time>`)}
${row(t("network"), html`${network.title}`)}
${receipt.txHashes.map(hash => row(t("transaction"), transaction(receipt, hash), "long"))}
${row(t("receiptNumber"), html`<code dir="ltr">${receipt.id}</code>`, "long")}
</dl>
${keptRows(t, receipt, kept)}
${receipt.redirectUrl && html`<a class="primary" href="${receipt.redirectUrl}">${t("backTo", { merchant })}</a>`}`,
    { isFinal: true },
  )
}

function byHand(t: Translate, page: PayPage, payTo: string): Html {
  const { token, network, status } = page
  const row = (name: string, value: string) => html`<div><dt>${name}</dt><dd><code>${value}</code></dd></div>`
  const isPaywall = page.kind === "paywall"
  return html`<div class="plain"><p>${t(isPaywall ? "ownWallet" : "manualIntro")}</p>
<dl class="facts">
${row(t("amount"), `${status.missing} ${token.symbol}`)}
${row(t("address"), payTo)}
${row(t("network"), `${network.title} (${network.chainId})`)}
${row(t("tokenContract"), token.address)}
</dl>
<p class="quiet">${t("manualWarning", { symbol: token.symbol, network: network.title })}</p>
${link(`/address/${payTo}?lang=${page.lang}`, t("moneyGoes"))}
<noscript><p class="quiet">${t(isPaywall ? "ownWalletNoScript" : "noScript")}</p></noscript></div>`
}
