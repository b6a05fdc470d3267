/** Whether ⌘K is wanted; its code is loaded when it first is. */
import { newStore } from "../api/store.ts"

export const isFindWanted = newStore(false)
let open: (() => void) | undefined

/** Opens the search. */
export function openFind(): void {
  isFindWanted.set(true)
  open?.()
}

/** What opens it once it is loaded. */
export const onOpenFind = (act: () => void): void => {
  open = act
}
