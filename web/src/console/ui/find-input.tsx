/** The search of a list: it asks once what is typed is something that the API can find, and says until then what that is. */
import { TextInput } from "@mantine/core"
import { useEffect, useId, useState } from "react"

interface Given {
  /** What can be typed, in words. */
  label: string
  /** What the list is searched by now. */
  value: string
  set: (text: string) => void
  /** Whether the API can find by this; half of a hash is no question. */
  isWhole?: (text: string) => boolean
  /** Said while it is not. */
  hint?: string
  /** For a number, which needs little room. */
  isNumber?: boolean
}

const WAIT_MS = 250
const always = () => true

export function FindInput({ label, value, set, isWhole = always, hint, isNumber = false }: Given) {
  const [typed, setTyped] = useState(value)
  const id = useId()
  const text = typed.trim()
  const isHalf = text !== "" && !isWhole(text)
  // A cleared filter clears what was typed, too.
  useEffect(() => setTyped(before => (value === "" && isWhole(before.trim()) ? "" : before)), [value, isWhole])
  useEffect(() => {
    if (text === value || isHalf) return
    const wait = setTimeout(() => set(text), WAIT_MS)
    return () => clearTimeout(wait)
  })
  return (
    <>
      <TextInput
        className={isNumber ? "brief" : "grow"}
        type="search"
        inputMode={isNumber ? "decimal" : "search"}
        size="xs"
        aria-label={label}
        placeholder={label}
        value={typed}
        {...(isHalf && hint ? { "aria-describedby": id } : {})}
        onChange={event => setTyped(event.currentTarget.value)}
      />
      {isHalf && hint && (
        <span id={id} className="quiet">
          {hint}
        </span>
      )}
    </>
  )
}
