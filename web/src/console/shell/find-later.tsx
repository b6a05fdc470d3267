/** Loads ⌘K when it is first wanted, by a click or by its keys. */
import { useEffect } from "react"
import { later } from "../ui/later.tsx"
import { isFindWanted, openFind } from "./find-store.ts"

const Find = later(async () => (await import("./find.tsx")).default)

export function FindLater() {
  const is = isFindWanted.use()
  useEffect(() => {
    if (is) return
    const onKey = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.metaKey || event.ctrlKey)) return
      event.preventDefault()
      openFind()
    }
    document.addEventListener("keydown", onKey)
    return () => document.removeEventListener("keydown", onKey)
  }, [is])
  return is ? <Find /> : null
}
