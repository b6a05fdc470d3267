/** The card that every page consists of: the merchant, and the content below. */
import type { ComponentChildren } from "preact"
import type { PageBase } from "../page-data.ts"
import { useWords } from "../ui/context.ts"
import { isLong } from "../ui/long.ts"

interface Props {
  page: PageBase
  /** The part below the merchant's name: what is for sale, and how much it costs. */
  head: ComponentChildren
  children: ComponentChildren
}

/** A card with the merchant's logo and name on top. */
export function Card({ page, head, children }: Props) {
  const { t } = useWords()
  return (
    <div class="card">
      {page.sandbox && <p class="test">{t("testMode")}</p>}
      <header class="head">
        {page.brand.logo && <img class="logo" src={page.brand.logo} alt="" />}
        <p class="merchant">
          <bdi>{page.merchant}</bdi>
        </p>
        {head}
      </header>
      {children}
    </div>
  )
}

/** A merchant's text. A long one is cut until the visitor asks for the rest. Nothing if there is none. */
export function What({ text }: { text: string | null }) {
  const { t } = useWords()
  if (!text) return null
  return (
    <div class="what">
      <p>
        <bdi>{text}</bdi>
      </p>
      {isLong(text) && (
        <details>
          <summary>
            <span class="more">{t("showMore")}</span>
            <span class="less">{t("showLess")}</span>
          </summary>
        </details>
      )}
    </div>
  )
}

/** An amount and its token. */
export function Amount({ unit, amount, as: Tag = "p" }: { unit: string; amount: string; as?: "h1" | "p" }) {
  const { local } = useWords()
  return (
    <Tag class="amount">
      <span class="number">{local(amount)}</span> <span class="unit">{unit}</span>
    </Tag>
  )
}
