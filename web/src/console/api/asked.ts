/** What a wallet is asked to sign now. */
import { Failure, type TypedData } from "./failure.ts"
import { newStore } from "./store.ts"

/** What the dialog shows, until it is signed or refused. */
export interface Asked {
  kind: "change" | "return"
  data: TypedData[]
  answer: (signatures: string[]) => void
  refuse: () => void
}

export const askedNow = newStore<Asked | undefined>(undefined)
/** Opens the dialog; the signatures are in the order of the data. Throws {@link Failure} where the person does not sign. */
export const askWallet = (kind: Asked["kind"], data: TypedData[]): Promise<string[]> =>
  new Promise((resolve, reject) => {
    const end = (act: () => void) => {
      askedNow.set(undefined)
      act()
    }
    askedNow.set({
      kind,
      data,
      answer: signatures => end(() => resolve(signatures)),
      refuse: () =>
        end(() =>
          reject(new Failure(0, { error: "NOT_SIGNED", message: "The change was not signed, so nothing changed." })),
        ),
    })
  })
