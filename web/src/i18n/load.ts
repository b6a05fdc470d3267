/** Loads the one catalogue that a page needs; each is a separate file. */
import type { Catalogue } from "./en.ts"
import type { Language } from "./languages.ts"

const loaders: Record<Language, () => Promise<Catalogue>> = {
  en: async () => (await import("./en.ts")).en,
  es: async () => (await import("./es.ts")).es,
  pt: async () => (await import("./pt.ts")).pt,
  fr: async () => (await import("./fr.ts")).fr,
  de: async () => (await import("./de.ts")).de,
  zh: async () => (await import("./zh.ts")).zh,
  ar: async () => (await import("./ar.ts")).ar,
}

/** The catalogue of a language. */
export const loadCatalogue = (language: Language): Promise<Catalogue> => loaders[language]()
