/** The links with which a payer says where to send waiting money. */
import type { PageBase, WaitingMoney } from "../page-data.ts"
import { useWords } from "../ui/context.ts"
import { newTab } from "./embedded.ts"
import { waitingMessage } from "./waiting.ts"

/** One link, or a list if money of several payments waits; nothing if none does. */
export function Returns({ page, waiting }: { page: PageBase; waiting: readonly WaitingMoney[] }) {
  const { t, lang } = useWords()
  const linkOf = ({ paymentId }: WaitingMoney) => ({ href: `/return/${paymentId}?lang=${lang}`, target: newTab })
  const [first, ...others] = waiting
  if (!first) return null
  if (others.length === 0)
    return (
      <a class="secondary" {...linkOf(first)}>
        {t("askReturn")}
      </a>
    )
  return (
    <div class="stack center">
      <p>{t("askReturn")}</p>
      <ul class="lines">
        {waiting.map(each => (
          <li key={each.paymentId}>
            <a {...linkOf(each)}>{waitingMessage(t, page.lang, each)}</a>
          </li>
        ))}
      </ul>
    </div>
  )
}
