/** The languages of the pages, and the choice of a visitor's language. Pure: the server and the browser both use it. */

/** Every language that has a catalogue, with its own name for itself. */
export const languages = {
  en: "English",
  es: "Español",
  pt: "Português",
  fr: "Français",
  de: "Deutsch",
  zh: "中文",
  ar: "العربية",
} as const
export type Language = keyof typeof languages

const rightToLeft: readonly string[] = ["ar"]

/** The direction of a language's script. */
export const directionOf = (language: Language): "ltr" | "rtl" => (rightToLeft.includes(language) ? "rtl" : "ltr")

const isLanguage = (text: string): text is Language => Object.hasOwn(languages, text)

/**
 * The language that the URL asks for, else the first available one of an `Accept-Language` header, else English.
 *
 * @example languageOf(undefined, "pt-BR,pt;q=0.9,en;q=0.5") // "pt"
 */
export function languageOf(asked: string | undefined, accepted: string | undefined): Language {
  if (asked !== undefined && isLanguage(asked)) return asked
  const wanted = (accepted ?? "")
    .slice(0, 500)
    .split(",")
    .map(part => {
      const [tag = "", ...parameters] = part.trim().split(";")
      const quality = parameters.map(each => /^\s*q=([\d.]+)\s*$/.exec(each)?.[1]).find(each => each !== undefined)
      return { language: tag.split("-", 1)[0]?.toLowerCase() ?? "", weight: Number(quality ?? 1) }
    })
    .filter(({ weight }) => weight > 0)
    .sort((a, b) => b.weight - a.weight)
  return wanted.map(({ language }) => language).find(isLanguage) ?? "en"
}
