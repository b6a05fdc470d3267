/** The subscription that a checkout starts or renews, and the way to start one at a paywall. */
import type { CheckoutStatus, PaywallPage, Renewal } from "../page-data.ts"
import { useWords } from "../ui/context.ts"
import { momentOf } from "../ui/moments.ts"
import { everyOf, periodOf, renewalMessage } from "./billing.ts"
import { newTab } from "./embedded.ts"

/** The days that an invoice is for, and when it is due. Nothing for a checkout that is not an invoice yet. */
export function InvoiceFacts({ status: { invoice } }: { status: CheckoutStatus }) {
  const { t, lang } = useWords()
  if (!invoice) return null
  return (
    <dl class="facts ledger">
      <InvoicePeriod invoice={invoice} />
      <div>
        <dt>{t("dueOn")}</dt>
        <dd>{momentOf(invoice.dueAt, lang)}</dd>
      </div>
    </dl>
  )
}

/** The row with the paid days. */
export function InvoicePeriod({ invoice }: { invoice: NonNullable<CheckoutStatus["invoice"]> }) {
  const { t, lang } = useWords()
  return (
    <div>
      <dt>{t("period")}</dt>
      <dd>{periodOf(invoice.periodStart, invoice.periodEnd, lang)}</dd>
    </div>
  )
}

/** Says that it renews, and that nothing is charged automatically. */
export function Renews({ renewal }: { renewal: Renewal }) {
  const { t, lang } = useWords()
  return <p class="quiet renews">{renewalMessage(t, lang, renewal)}</p>
}

/** A link to the subscriber's own page. */
export function ManageLink() {
  const { t, lang } = useWords()
  return (
    <a class="link center" target={newTab} href={`/subscriptions?lang=${lang}`}>
      {t("manageSubscription")}
    </a>
  )
}

/** The other way to open a paywall, if it has one: a form, like the one for pages without a script. */
export function Subscribe({ page }: { page: PaywallPage }) {
  const { t, lang, local } = useWords()
  const { subscription, status } = page
  if (!subscription) return null
  const values = {
    symbol: page.token.symbol,
    amount: local(subscription.amount),
    every: everyOf(t, lang, subscription),
  }
  return (
    <form class="stack" action={`/paywall/${status.sessionId}/subscribe`}>
      <input type="hidden" name="lang" value={lang} />
      <button type="submit" class="secondary">
        {t("subscribeFor", values)}
      </button>
      <p class="quiet center">{renewalMessage(t, lang, subscription)}</p>
    </form>
  )
}
