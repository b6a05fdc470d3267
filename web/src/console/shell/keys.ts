/** Keys: what is pressed outside of fields and dialogs, alone or after `g`. */
import { useEffect, useRef } from "react"

type Keys = Record<string, () => void>

const AFTER_G_MS = 1_200
let gAt = 0

/** Whether a key is meant for the page: not typed into a field, not for a dialog or a menu. */
const isForPage = ({ target, metaKey, ctrlKey, altKey, defaultPrevented }: KeyboardEvent): boolean =>
  !(metaKey || ctrlKey || altKey || defaultPrevented) &&
  target instanceof HTMLElement &&
  !target.closest(
    "input:not([type=checkbox]), textarea, select, [contenteditable], [role=dialog], [role=menu], [role=listbox]",
  )

/** Calls what belongs to a key, such as `j`, `?` or `g p`, while the component is there. */
export function useKeys(keys: Keys): void {
  const current = useRef(keys)
  current.current = keys
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (!isForPage(event)) return
      const isSecond = Date.now() - gAt < AFTER_G_MS
      const name = isSecond && event.key !== "g" ? `g ${event.key}` : event.key
      // A link or a button in focus has Enter for itself.
      if (event.key === "Enter" && (event.target as HTMLElement).closest("a, button")) return
      const act = current.current[name]
      if (!act) return
      event.preventDefault()
      act()
    }
    document.addEventListener("keydown", onKey)
    return () => document.removeEventListener("keydown", onKey)
  }, [])
}

/** Remembers that `g` was pressed, once for the whole app. */
export function followG(): void {
  document.addEventListener(
    "keydown",
    event => {
      if (event.key === "g" && isForPage(event)) gAt = Date.now()
      // After the listeners of this key, so that they see it.
      else setTimeout(() => (gAt = 0))
    },
    true,
  )
}
