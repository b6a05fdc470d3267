/** Loads the one catalogue that a page needs; each is a file of its own. */
import type { Catalogue } from "./en.ts"
import type { Language } from "./languages.ts"

const loaders: Record<Language, () => Promise<Catalogue>> = {
  en: async () => (await import("./en.ts")).en,
}

/** The catalogue of a language. */
export const loadCatalogue = (language: Language): Promise<Catalogue> => loaders[language]()
