/** The foot of a page: who can receive what is paid to the address, and the languages. */
import { languages } from "../i18n/languages.ts"
import { useWords } from "../ui/context.ts"

const toLanguage = (language: string): void => {
  const url = new URL(location.href)
  url.searchParams.set("lang", language)
  location.replace(url)
}

/**
 * A link to the terms of the address, for visitors who want to compute it (`sluice verify-address`), and a choice of
 * language.
 */
export function Foot({ payTo }: { payTo?: string | undefined }) {
  const { t, lang } = useWords()
  return (
    <footer class="foot">
      {payTo && (
        <a href={`/api/deposits/${payTo}`} target="_blank" rel="noreferrer">
          {t("verifyAddress")}
        </a>
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
