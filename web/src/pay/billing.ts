/** Words and times for a subscription and its invoices. Pure: the server and the browser both use it. */
import type { Catalogue } from "../i18n/en.ts"
import type { Translate } from "../i18n/words.ts"
import type { BillingPeriod, CheckoutStatus, PageBase, Renewal } from "../page-data.ts"
import { momentOf } from "../ui/moments.ts"
import type { Stage } from "./stage.ts"
import type { StageMessage } from "./words-of.ts"

const single: Record<BillingPeriod["interval"], keyof Catalogue> = {
  day: "everyDay",
  week: "everyWeek",
  month: "everyMonth",
  year: "everyYear",
}

/**
 * A length of time in a language, with the number's plural.
 *
 * @example lengthOf("de", { interval: "month", count: 3 }) // "3 Monate"
 */
const lengthOf = (language: string, { interval, count }: BillingPeriod): string =>
  new Intl.NumberFormat(`${language}-u-nu-latn`, { style: "unit", unit: interval, unitDisplay: "long" }).format(count)

/** How often something is billed, such as "every month" or "every 3 months". */
export const everyOf = (t: Translate, language: string, period: BillingPeriod): string =>
  period.count === 1 ? t(single[period.interval]) : t("everyMany", { period: lengthOf(language, period) })

/** Says that a checkout starts or renews a subscription, and that nothing is charged automatically. */
export function renewalMessage(t: Translate, language: string, renewal: Renewal): string {
  const { trialDays, maxPeriods } = renewal
  const free = lengthOf(language, { interval: "day", count: trialDays })
  return [
    ...(trialDays > 0 ? [t("trialBefore", { period: free })] : []),
    t("renews", { every: everyOf(t, language, renewal) }),
    ...(maxPeriods === null ? [] : [t("renewsMost", { count: maxPeriods })]),
  ].join(" ")
}

/** The days of a period, from its start to its end. */
export function periodOf(start: string, end: string, language: string, zone?: "UTC"): string {
  const form = new Intl.DateTimeFormat(`${language}-u-nu-latn`, { dateStyle: "medium", timeZone: zone })
  return form.formatRange(new Date(start), new Date(end))
}

/** The heading and the sentence of an invoice; undefined if they are the same as for any checkout. */
export function invoiceMessage(
  t: Translate,
  page: PageBase,
  { invoice, exception, stage, zone }: Pick<CheckoutStatus, "invoice" | "exception"> & Shown,
): StageMessage | undefined {
  if (!invoice || exception !== null) return undefined
  const time = (at: string) => momentOf(at, page.lang, { zone })
  const { merchant } = page
  if (stage === "paid")
    return invoice.state === "paid" && invoice.lasts
      ? { title: t("paid"), text: t("paidThrough", { time: time(invoice.periodEnd) }), tone: "good" }
      : undefined
  if (stage === "expired" || stage === "failed")
    return invoice.state === "void"
      ? { title: t("invoiceVoid"), text: t("invoiceVoidWords", { merchant }), tone: "bad" }
      : { title: t("invoiceEnded"), text: t("invoiceEndedWords", { merchant }), tone: "bad" }
  if (stage !== "pay") return undefined
  if (invoice.state === "due")
    return { title: t("invoiceDue"), text: t("invoiceDueWords", { time: time(invoice.graceUntil) }), tone: "warn" }
  if (invoice.state === "past_due")
    return { title: t("invoiceLate"), text: t("invoiceLateWords", { time: time(invoice.endsAt) }), tone: "bad" }
  return undefined
}

interface Shown {
  stage: Stage
  zone?: "UTC" | undefined
}
