/** What is copied by a click, and said to have been. */
import { notifications } from "@mantine/notifications"
import { curlOf, type Shown } from "../api/curl.ts"

/** Puts text on the clipboard, and says so. */
export async function copyText(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text)
    notifications.show({ id: `copied-${what}`, message: `${what} copied`, autoClose: 1_800 })
  } catch {
    notifications.show({ message: "The browser did not allow it. Select the text and copy it.", color: "red" })
  }
}

export const copyCurl = (request: Shown): Promise<void> => copyText(curlOf(request), "curl command")

const HUES = 360
/** A colour of a hash, so that the eye can tell two apart: its last six digits. */
const dotOf = (text: string): string => {
  const value = Number.parseInt(text.replace(/[^0-9a-f]/gi, "").slice(-6) || "0", 16)
  return `hsl(${value % HUES} 55% 58%)`
}

/** An address or a hash, shortened in the middle; a click copies all of it. */
export function Hash({ value, what = "Address", dot = true }: { value: string; what?: string; dot?: boolean }) {
  return (
    <button type="button" className="hash" title={`${value} (click to copy)`} onClick={() => copyText(value, what)}>
      {dot && <i style={{ background: dotOf(value) }} aria-hidden="true" />}
      <span>{`${value.slice(0, 6)}…${value.slice(-4)}`}</span>
    </button>
  )
}

/** An id of ours: its kind, its beginning and its end. */
export const shortId = (id: string): string =>
  id.length < 14 ? id : `${id.slice(0, id.indexOf("_") + 5)}…${id.slice(-4)}`

/** An id of ours, whole or shortened; a click copies it. */
export function Id({ value, whole = false }: { value: string; whole?: boolean }) {
  const shown = whole ? value : shortId(value)
  return (
    <button type="button" className="hash" title={`${value} (click to copy)`} onClick={() => copyText(value, "Id")}>
      <span style={whole ? { whiteSpace: "normal", textAlign: "start", overflowWrap: "anywhere" } : {}}>{shown}</span>
    </button>
  )
}
