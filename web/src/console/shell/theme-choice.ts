/** Light, dark, or as the system is. */
import { useSyncExternalStore } from "react"
import { keptStore } from "../api/store.ts"

export const themeChoice = keptStore<"system" | "light" | "dark">("theme", "system")
const dark = matchMedia("(prefers-color-scheme: dark)")

const follow = (listener: () => void) => {
  dark.addEventListener("change", listener)
  return () => dark.removeEventListener("change", listener)
}

export function useScheme(): "light" | "dark" {
  const choice = themeChoice.use()
  const isDark = useSyncExternalStore(follow, () => dark.matches)
  return choice === "system" ? (isDark ? "dark" : "light") : choice
}
