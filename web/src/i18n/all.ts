/** All catalogues, for the server, which answers in every language. */
import { ar } from "./ar.ts"
import { de } from "./de.ts"
import { type Catalogue, en } from "./en.ts"
import { es } from "./es.ts"
import { fr } from "./fr.ts"
import type { Language } from "./languages.ts"
import { pt } from "./pt.ts"
import { zh } from "./zh.ts"

export const catalogues: Record<Language, Catalogue> = { en, es, pt, fr, de, zh, ar }
