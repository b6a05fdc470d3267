/** The data that every part of a page needs: its words, its language, and its facts. */
import { createContext } from "preact"
import { useContext } from "preact/hooks"
import type { Translate } from "../i18n/words.ts"
import { localAmount } from "./amounts.ts"

interface Words {
  t: Translate
  lang: string
}

export const WordsContext = createContext<Words>({ t: key => key, lang: "en" })

/** The words of this page, and amounts in its language. */
export function useWords(): Words & { local: (amount: string) => string } {
  const words = useContext(WordsContext)
  return { ...words, local: amount => localAmount(amount, words.lang) }
}
