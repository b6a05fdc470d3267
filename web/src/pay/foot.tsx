/** The foot of a page: the choice of language. */
import { languages } from "../i18n/languages.ts"
import { useWords } from "../ui/context.ts"

const toLanguage = (language: string): void => {
  const url = new URL(location.href)
  url.searchParams.set("lang", language)
  location.replace(url)
}

/** The languages; nothing if there is only one. */
export function Foot() {
  const { t, lang } = useWords()
  return (
    <footer class="foot">
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
