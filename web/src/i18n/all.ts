/** All catalogues at once: for the server, which answers every language. */
import { type Catalogue, en } from "./en.ts"
import type { Language } from "./languages.ts"

export const catalogues: Record<Language, Catalogue> = { en }
