/** Renders the page that says in words where the money at a receiving address can go. */
import type { Language } from "../../../../web/src/i18n/languages.ts"
import type { Translate } from "../../../../web/src/i18n/words.ts"
import { momentOf } from "../../../../web/src/ui/moments.ts"
import type { CommittedTerms } from "../../ledger/deposits/read-terms.ts"
import { checksummed } from "../../platform/chain/hex.ts"
import { networkFacts, networkOf } from "../../platform/chain/network-facts.ts"
import type { TxContext } from "../../platform/context.ts"
import { card } from "./bodies.ts"
import { type Html, html } from "./html.ts"

/** The sum of all shares, which are in ten-thousandths of a percent. */
const WHOLE_E4 = 1_000_000

/**
 * The card of an address. It names no merchant: anyone can look up any address on the chain here, and would learn who
 * owns it.
 */
export function addressBody(ctx: TxContext, t: Translate, lang: Language, { row, payees }: CommittedTerms): Html {
  const code = (address: typeof row.address) => html`<code dir="ltr">${checksummed(address)}</code>`
  const line = (name: string, address: typeof row.address) =>
    html`<div class="long"><dt>${name}</dt><dd>${code(address)}</dd></div>`
  const percent = new Intl.NumberFormat(`${lang}-u-nu-latn`, { style: "percent", maximumFractionDigits: 4 })
  const network = networkFacts[networkOf(ctx.chain, row.chain_id).name].title
  const opensAt = new Date(Number.parseInt(row.open_after_s.toString(), 10) * 1_000)
  const back = row.approver === row.factory ? t("moneyBackService") : t("moneyBackWallet")
  return card(
    t,
    { lang, sandbox: ctx.settings.mode === "sandbox" },
    html`<header class="head"><h1 class="state">${t("moneyGoes")}</h1></header>
<p>${t("moneyGoesWords", { network })}</p>
<dl class="facts ledger">
${line(t("address"), row.address)}
${payees.map(({ address, percentE4 }) => line(t("moneyShare", { percent: percent.format(percentE4 / WHOLE_E4) }), address))}
${line(t("moneyOwner"), row.owner)}
${row.approver !== row.factory && line(t("moneyApprover"), row.approver)}
</dl>
<p>${back} ${t("moneyAfter", { time: momentOf(opensAt, lang, { zone: "UTC" }) })}</p>
<a class="link center" href="/api/deposits/${checksummed(row.address)}">${t("moneyData")}</a>`,
    { isFinal: true },
  )
}
