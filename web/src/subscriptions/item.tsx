/** One subscription on its subscriber's page. */
import type { Ref } from "preact"
import { useState } from "preact/hooks"
import type { Catalogue } from "../i18n/en.ts"
import { everyOf, periodOf } from "../pay/billing.ts"
import { useWords } from "../ui/context.ts"
import { momentOf } from "../ui/moments.ts"
import { shown } from "../ui/shown.ts"
import { type Invoice, invoicesOf, type Session, type Subscription } from "./calls.ts"
import { Cancel } from "./cancel.tsx"

interface Props {
  session: Session
  subscription: Subscription
  change: (changed: Subscription) => void
  fail: (error: unknown) => void
  heading?: Ref<HTMLHeadingElement>
}

type Tone = "good" | "wait" | "bad" | "neutral"

/** Its state, in a word. */
function badgeOf({ status, endsAt }: Subscription): [key: keyof Catalogue, tone: Tone] {
  if (status === "canceled") return ["subEnded", "neutral"]
  if (status === "past_due") return ["subLate", "bad"]
  if (status === "payment_due") return ["subDue", "wait"]
  if (status === "paused") return ["subPaused", "neutral"]
  return endsAt === null ? ["subActive", "good"] : ["subEnding", "wait"]
}

/** Its name, its state, and the possible actions. */
export function Item({ session, subscription, change, fail, heading }: Props) {
  const { t, lang, local } = useWords()
  const { id, product, merchant, openInvoice, status, cancelAtPeriodEnd, canResume } = subscription
  const [badge, tone] = badgeOf(subscription)
  const period = { interval: subscription.billingInterval, count: subscription.billingCount }
  return (
    <li class="item stack" data-subscription={status}>
      <div class="split">
        <h2 class="name" tabIndex={-1} ref={heading ?? null}>
          <bdi>{shown(product)}</bdi>
        </h2>
        <span class={`badge ${tone}`}>{t(badge)}</span>
      </div>
      <p class="quiet">
        <bdi>{shown(merchant)}</bdi>
        <br />
        {local(subscription.amount)} {subscription.currency} {everyOf(t, lang, period)}
      </p>
      <dl class="facts ledger">
        <Times subscription={subscription} />
      </dl>
      {status === "paused" && <p class="note">{t("pausedBy", { merchant: shown(merchant) })}</p>}
      {status !== "canceled" && cancelAtPeriodEnd && !canResume && (
        <p class="note">{t("endedBy", { merchant: shown(merchant) })}</p>
      )}
      {openInvoice && (
        <a
          class={status === "active" ? "secondary" : "primary"}
          href={`/invoice/${openInvoice.id}?lang=${lang}`}
          target="_blank"
          rel="noreferrer"
        >
          {t("payInvoice", { amount: local(openInvoice.amount), symbol: openInvoice.currency })}
        </a>
      )}
      {/* The key discards the loaded list once an invoice was paid or withdrawn. */}
      <Invoices key={openInvoice?.id} session={session} id={id} fail={fail} />
      {status !== "canceled" && <Cancel session={session} subscription={subscription} change={change} fail={fail} />}
    </li>
  )
}

/** The end of the paid period, and what comes next. */
function Times({ subscription }: { subscription: Subscription }) {
  const { t, lang } = useWords()
  const { status, paidUntil, accessUntil, openInvoice, nextDueAt, endsAt } = subscription
  const rows: [key: keyof Catalogue, at: string | null][] =
    status === "canceled"
      ? [["endedOn", accessUntil]]
      : [
          ["paidUntil", paidUntil],
          ["dueOn", openInvoice?.dueAt ?? null],
          ["nextPayment", openInvoice ? null : nextDueAt],
          ["endsOn", endsAt],
        ]
  return (
    <>
      {rows.map(
        ([key, at]) =>
          at !== null && (
            <div key={key}>
              <dt>{t(key)}</dt>
              <dd>{momentOf(at, lang)}</dd>
            </div>
          ),
      )}
    </>
  )
}

const invoiceMessage: Record<Invoice["status"], keyof Catalogue> = {
  open: "invoiceOpen",
  paid: "invoicePaid",
  void: "invoiceWithdrawn",
  unpaid: "invoiceUnpaid",
}

/** The invoices, loaded on request. */
function Invoices({ session, id, fail }: Pick<Props, "session" | "fail"> & { id: string }) {
  const { t, lang, local } = useWords()
  const [list, setList] = useState<{ data: Invoice[]; total: number }>()
  const load = async (known: Invoice[]) => {
    try {
      const more = await invoicesOf(session, id, known.length)
      setList({
        data: [...known, ...more.data.filter(each => !known.some(({ id }) => id === each.id))],
        total: more.total,
      })
    } catch (error) {
      fail(error)
    }
  }
  return (
    <details onToggle={event => event.currentTarget.open && !list && void load([])}>
      <summary>{t("pastInvoices")}</summary>
      <ul class="lines">
        {list?.data.map(each => (
          <li key={each.id} class="split">
            <span>
              {periodOf(each.periodStart, each.periodEnd, lang)}
              <br />
              <span class="quiet">
                {local(each.amount)} {each.currency} · {t(invoiceMessage[each.status])}
              </span>
            </span>
            {each.receiptUrl && (
              <a
                href={`${new URL(each.receiptUrl).pathname}?lang=${lang}`}
                target="_blank"
                rel="noreferrer"
                aria-label={`${t("viewReceipt")}: ${periodOf(each.periodStart, each.periodEnd, lang)}`}
              >
                {t("receipt")}
              </a>
            )}
          </li>
        ))}
      </ul>
      {list && list.data.length < list.total && (
        <button type="button" class="link" onClick={() => load(list.data)}>
          {t("showMore")}
        </button>
      )}
    </details>
  )
}
