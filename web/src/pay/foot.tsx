/** The foot of a page: who owns what is paid to the address, and the languages. */
import { languages } from "../i18n/languages.ts"
import type { AddressTerms } from "../page-data.ts"
import { useWords } from "../ui/context.ts"

const toLanguage = (language: string): void => {
  const url = new URL(location.href)
  url.searchParams.set("lang", language)
  location.replace(url)
}

/** The terms of the address, and a choice of language. */
export function Foot({ terms, payTo }: { terms?: AddressTerms; payTo?: string | undefined }) {
  const { t, lang } = useWords()
  const fact = (name: string, value: string) => (
    <div>
      <dt>{name}</dt>
      <dd>
        <code dir="ltr">{value}</code>
      </dd>
    </div>
  )
  return (
    <footer class="foot">
      {terms && payTo && (
        <details>
          <summary>{t("verifyAddress")}</summary>
          <p>{t("verifyWords")}</p>
          <dl class="facts">
            {fact(t("address"), payTo)}
            {fact(t("owner"), terms.owner)}
            {fact(t("factory"), terms.factory)}
            {fact(t("salt"), terms.salt)}
            {fact(t("openAfter"), String(terms.openAfter))}
          </dl>
        </details>
      )}
      {Object.keys(languages).length > 1 && (
        <label>
          <span class="aside">{t("language")}</span>
          <select onChange={event => toLanguage(event.currentTarget.value)}>
            {Object.entries(languages).map(([key, name]) => (
              <option key={key} value={key} selected={key === lang} lang={key}>
                {name}
              </option>
            ))}
          </select>
        </label>
      )}
    </footer>
  )
}
