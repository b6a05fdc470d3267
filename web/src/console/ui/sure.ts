/** The question that a person is asked now, before what can't be undone. */
import { newStore } from "../api/store.ts"

interface Question {
  title: string
  /** What follows from it. */
  words: string
  /** The button that does it. */
  yes: string
}

export const sureNow = newStore<(Question & { answer: (is: boolean) => void }) | undefined>(undefined)

/** Whether the person wants it. Closing the dialog is a no. */
export const isSure = (question: Question): Promise<boolean> =>
  new Promise(answer => sureNow.set({ ...question, answer }))
